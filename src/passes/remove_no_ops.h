#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Erases calls that give back an operand as it is.
///
/// Views: `alias`, `detach`, `lift_fresh`, and `view`, `_unsafe_view` and `expand` to the type that
/// the operand has already. Copies, where nobody could tell the copy from the original: `clone`,
/// `_to_copy`, `copy`, `slice_scatter` over everything, `repeat` by ones, `constant_pad_nd` by
/// zeros, `cat` of one tensor, rounding of integers, and `x * 1`, `x / 1`, `x - 0`, `x + -0.0`,
/// `x ** 1`. Not `x + 0` of floating numbers, which makes 0 of -0.
///
/// Expects a functional graph. Keeps the tensors that the caller receives apart: an output never
/// becomes an input, nor a value that another output returns already. Keeps every dependence on a
/// tangent.
PassResult remove_no_ops(ir::Graph& graph);

}  // namespace tandem::passes
