#pragma once

#include "ops/own/own_op.h"

namespace tandem::ops {

/// `tandem::as_size(Tensor number) -> Tensor`: a tensor without elements whose first size is the
/// number. A number that host code reads and hands on goes through the graph as this size. Raises
/// if it is negative.
extern const OwnOp kAsSize;

}  // namespace tandem::ops
