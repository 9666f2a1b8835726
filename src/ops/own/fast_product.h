#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::ops {

/// The op of Rounding::fast: a product of matrices, or of batches of them, in f32 on the CPU, by
/// oneDNN where that is faster than the library that libtorch calls.
c10::OperatorHandle fast_product();

}  // namespace tandem::ops
