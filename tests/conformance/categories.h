#pragma once

#include "conformance/case.h"

#include <vector>

namespace tandem::conformance {

// The categories of the peer's tests, and our own; sorted.
Category batch_norm_buffers();
Category beyond_peer();
Category custom_functions();
Category dedupe();
Category input_mutation_data();
Category input_mutation_metadata();
Category input_mutation_storage();
Category intermediate_base();
Category interplay();
Category lifetime();
Category mutation_in_backward();
Category one_pass_programs();
Category output_alias();
Category synthetic_base();
Category tangents();

}  // namespace tandem::conformance
