#pragma once

#include "backends/llvm_common/kernel_compiler.h"
#include "tandem/backend.h"

#include <memory>
#include <string>

namespace tandem::backends::llvm_common {

/// Fuses pointwise work and reductions into kernels that `compiler` makes run, and leaves the rest
/// to libtorch. `judge`, the eager backend, runs what is left over, raises eager's errors and
/// checks kernels.
std::shared_ptr<Backend> make_backend(std::shared_ptr<KernelCompiler> compiler,
                                      std::shared_ptr<Backend> judge);

}  // namespace tandem::backends::llvm_common
