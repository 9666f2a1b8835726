#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::write_in_backward(Tensor input, Tensor data, int versions) -> ()`: a hook or custom
/// function of the backward gives an input new data, and moves its version counter by so much.
extern const OwnOp kWriteInBackward;

}  // namespace tandem::ops
