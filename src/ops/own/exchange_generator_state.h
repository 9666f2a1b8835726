#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::exchange_generator_state(Tensor state, *, Generator? generator) -> Tensor`: sets a
/// generator (none: the default one of the CPU) to `state`; the result is where it stood before.
/// Counts as a draw, so that it keeps its place among draws.
extern const OwnOp kExchangeGeneratorState;

}  // namespace tandem::ops
