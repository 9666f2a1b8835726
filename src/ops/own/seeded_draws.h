#pragma once

#include "ops/own/own_op.h"
#include "tandem/decomposition.h"

#include <cstdint>

namespace tandem::ops {

// The ops of Random::fast. A draw takes one number of the generator as its seed; each element is
// then a function of the seed and of its place, so that any thread can make it, or make it again.

/// `tandem::draw_seed(Tensor like) -> Tensor`: one number of the CPU's default generator.
extern const OwnOp kDrawSeed;
/// `tandem::bernoulli_from(Tensor like, Tensor seed, float p) -> Tensor`
extern const OwnOp kBernoulliFrom;

/// An element is true if the low half of its random bits is below this.
int64_t bernoulli_threshold(double p);

/// Draws of libtorch in terms of these ops.
Decompositions seeded_draws();

}  // namespace tandem::ops
