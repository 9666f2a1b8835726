#pragma once

#include "tandem/decomposition.h"

namespace tandem::backends::llvm_cpu {

/// Attention of 16-bit floats computed in f32: libtorch's kernel for the CPU is faster in it, its
/// backward more than twice, and nearer to the exact result. For Rounding::fast.
void add_wide_attention(Decompositions& table);

}  // namespace tandem::backends::llvm_cpu
