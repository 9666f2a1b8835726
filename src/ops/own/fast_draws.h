#pragma once

#include "tandem/decomposition.h"

#include <cstdint>

namespace tandem::ops {

/// The ops of Random::fast. A draw takes one number of the generator as its seed; each element is
/// then a function of the seed and of its place, so that any thread can make it, or make it again.
inline constexpr const char* kDrawSeed = "tandem::draw_seed";
inline constexpr const char* kBernoulliFrom = "tandem::bernoulli_from";

/// An element is true if the low half of its random bits is below this.
int64_t bernoulli_threshold(double p);

/// Draws of libtorch in terms of these ops.
Decompositions fast_draws();

}  // namespace tandem::ops
