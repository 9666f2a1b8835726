#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

// Inputs that hooks and custom functions of the backward write. Eager's backward finds in them what
// they hold by then, whoever wrote it, and compares no version.

/// `tandem::itself(Tensor input) -> Tensor`: in the forward, the tensor that came in, handed on to
/// the backward. Nothing but the two below reads it.
extern const OwnOp kItself;

/// `tandem::read_in_backward(Tensor itself, int[] stride) -> Tensor`: what the tensor holds, in
/// memory of its own with these strides.
extern const OwnOp kReadInBackward;

/// `tandem::write_in_backward(Tensor(a!) itself, Tensor data, int versions) -> ()`: gives the
/// tensor new data, and moves its version counter by so much.
extern const OwnOp kWriteInBackward;

/// A mark, which the partition takes out: `tandem::written(Tensor(a) data, Tensor before, int
/// formula) -> Tensor(a)`: what a tensor holds after that formula of the signature; what it held
/// before where a backward leaves the formula out.
extern const OwnOp kWritten;

}  // namespace tandem::ops
