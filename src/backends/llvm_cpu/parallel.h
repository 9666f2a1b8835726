#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tandem::backends::llvm_cpu {

/// Pieces of 0 to `count` on libtorch's threads, as at::parallel_for: no more pieces than `grain`
/// allows, one after the other inside a parallel region.
///
/// at::parallel_for itself is a template, and without effect in code that is not compiled for
/// OpenMP; compiled for it, code brings a runtime of its own along, with threads beside libtorch's.
/// So the runtime that libtorch uses is asked by name.
void in_parallel(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> piece);

}  // namespace tandem::backends::llvm_cpu
