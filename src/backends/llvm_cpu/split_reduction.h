#pragma once

#include "loops/ir/loop_ir.h"

#include <cstdint>
#include <optional>

namespace tandem::backends::llvm_cpu {

/// A reduction to few results, split among threads. Both kernels have the buffers of the whole one
/// and after them one for each reduction, which `partial` writes and `total` reads.
struct SplitReduction {
  loops::Kernel partial;  // reduces pieces of the longest reduced dim, each for itself
  loops::Kernel total;    // reduces the results of the pieces, then does what followed
};

/// Nothing if the kernel has work for several threads as it is, is too small, or cannot be split.
std::optional<SplitReduction> split_reduction(const loops::Kernel& kernel);

}  // namespace tandem::backends::llvm_cpu
