#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// The history of a determinant, such that gradients of gradients are eager's.
//
// Where a gradient shall be differentiated, libtorch solves a system for regular matrices and takes
// singular values for the others. It does not tell them apart in a trace, where there is no data:
// then all go by singular values, whose derivative does not exist where two of them are equal. Here
// both formulas are recorded, each for matrices that it can do, and the determinant chooses.

/// Leaves the matrix, if it has a gradient.
std::any note_matrix(BoxedCall& call);
/// Gives the result of the op that history in place of libtorch's.
void give_both_formulas(BoxedCall& call, std::any& matrix);

}  // namespace tandem::tracing
