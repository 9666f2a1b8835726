#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

// Marks in a recorded backward: what depends on which tangents are defined. The partition takes
// them out when it knows.

/// `tandem::arrives(gradient, tangents)`: the gradient, which is there if one of the tangents is
/// defined, and not there otherwise, whatever its data depends on.
extern const OwnOp kArrives;

/// `tandem::either(gradient, otherwise, tangents)`: the gradient if one of the tangents is defined,
/// else the other value. None stands for zeros like the gradient.
extern const OwnOp kEither;

/// `tandem::raises(like, text)`: stands for a value on whose way eager raises this.
extern const OwnOp kRaises;

}  // namespace tandem::ops
