#include "conformance/categories.h"

namespace tandem::conformance {

std::vector<Category> all_categories() {
  return {
      input_mutation_data(),
      input_mutation_metadata(),
      output_alias(),
      one_pass_programs(),
  };
}

}  // namespace tandem::conformance
