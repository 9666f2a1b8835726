#pragma once

#include "tandem/backend.h"

#include <memory>

namespace tandem::backends::eager {

/// Interprets graphs with libtorch's own kernels: one boxed call per node, the judge of every other
/// backend. Intermediates die at their last use, and pointwise ops overwrite an operand that dies
/// with them.
std::shared_ptr<Backend> make_backend();

}  // namespace tandem::backends::eager
