#pragma once

#include "loops/ir/kernel_compiler.h"
#include "tandem/backend.h"

#include <memory>
#include <string>

namespace tandem::loops {

/// Fuses pointwise work and reductions into kernels that `compiler` makes run, and leaves the rest
/// to libtorch. `judge`, the eager backend, runs what is left over and raises eager's errors. With
/// `check` it also runs every kernel's nodes on the kernel's inputs, and a difference beyond
/// rounding is an InternalError.
std::shared_ptr<Backend> make_backend(std::shared_ptr<KernelCompiler> compiler,
                                      std::shared_ptr<Backend> judge, bool check = false);

}  // namespace tandem::loops
