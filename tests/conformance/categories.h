#pragma once

#include "conformance/case.h"

#include <vector>

namespace tandem::conformance {

// One function per category of the peer's tests; each lies in the file of its name.
Category input_mutation_data();
Category input_mutation_metadata();
Category one_pass_programs();
Category output_alias();

}  // namespace tandem::conformance
