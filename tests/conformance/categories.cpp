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
      tangents(),
      lifetime(),
      random_numbers(),
      custom_functions(),
      error_messages(),
      one_pass_programs(),
      beyond_peer(),
  };
}

}  // namespace tandem::conformance
