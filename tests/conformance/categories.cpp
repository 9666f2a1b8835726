#include "conformance/categories.h"

namespace tandem::conformance {

std::vector<Category> all_categories() {
  return {
      basics(),
      tracing_front_end(),
      input_mutation_data(),
      input_mutation_metadata(),
      input_mutation_storage(),
      output_alias(),
      intermediate_base(),
      dedupe(),
      synthetic_base(),
      mutation_in_backward(),
      batch_norm_buffers(),
      dynamic_shapes(),
      partition_default(),
      partition_min_cut(),
      checkpoints(),
      common_subexpressions(),
      tangents(),
      lifetime(),
      donated_buffers(),
      random_numbers(),
      effect_tokens(),
      autocast(),
      ordering_nodes(),
      custom_functions(),
      double_backward(),
      metadata_records(),
      error_messages(),
      exported(),
      cache(),
      compiled_optimizers(),
      one_pass_programs(),
      beyond_peer(),
      fuzz_found(),
      interplay(),
      leaf_views(),
      closed_over_views(),
      partial_backwards(),
      exchanged_data(),
      lazy_views(),
      parted_views(),
      written_aliases(),
      written_places(),
      view_histories(),
      parted_results(),
  };
}

}  // namespace tandem::conformance
