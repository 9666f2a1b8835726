#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::product(Tensor a, Tensor b) -> Tensor`, the op of Rounding::fast: a product of
/// matrices, or of batches of them, in f32 on the CPU, by oneDNN where that is faster than the
/// library that libtorch calls.
extern const OwnOp kProduct;

}  // namespace tandem::ops
