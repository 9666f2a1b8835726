#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::arrives(gradient, tangents)`: the gradient, which is there whenever one of the tangents
/// is defined. The partition takes it out when it knows which are.
extern const OwnOp kArrives;

}  // namespace tandem::ops
