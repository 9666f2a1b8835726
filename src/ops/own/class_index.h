#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::class_index(Tensor target, int classes, int ignore_index) -> Tensor`: where a loss
/// finds the class of each row: the target itself, of an ignored row 0. For a target out of range
/// it raises the error of libtorch's losses, which a lookup through the target would not.
extern const OwnOp kClassIndex;

}  // namespace tandem::ops
