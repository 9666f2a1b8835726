#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::bernoulli_like(Tensor x, float p, *, Generator? generator) -> Tensor`: fills a tensor
/// like x as `x.bernoulli_(p)` does, in the order of its memory. Functionalization turns that call
/// into `bernoulli(x, p)`, which fills a contiguous result: on channels_last data the same draws
/// would go to other elements.
extern const OwnOp kBernoulliLike;

}  // namespace tandem::ops
