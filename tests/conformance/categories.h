#pragma once

#include "conformance/case.h"

#include <vector>

namespace tandem::conformance {

// The categories of the peer's tests, and our own; sorted.
Category autocast();
Category basics();
Category batch_norm_buffers();
Category beyond_peer();
Category cache();
Category checkpoints();
Category closed_over_views();
Category common_subexpressions();
Category compiled_optimizers();
Category custom_functions();
Category dedupe();
Category donated_buffers();
Category double_backward();
Category dynamic_shapes();
Category effect_tokens();
Category error_messages();
Category exported();
Category fuzz_found();
Category input_mutation_data();
Category input_mutation_metadata();
Category input_mutation_storage();
Category intermediate_base();
Category interplay();
Category leaf_views();
Category exchanged_data();
Category lazy_views();
Category lifetime();
Category metadata_records();
Category mutation_in_backward();
Category one_pass_programs();
Category ordering_nodes();
Category output_alias();
Category partial_backwards();
Category parted_results();
Category parted_views();
Category partition_default();
Category partition_min_cut();
Category random_numbers();
Category synthetic_base();
Category tangents();
Category tracing_front_end();
Category view_histories();
Category view_memory();
Category written_aliases();
Category written_places();

}  // namespace tandem::conformance
