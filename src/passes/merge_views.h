#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Gives way to the first value that shows the same elements of the same memory in the same shape:
/// a view and its inverse, a view taken twice, a view of everything. What is left of a chain of
/// views is taken from as far up as one op can take it.
///
/// Expects a functional graph. Keeps the memory that every value lies in, and the tensors that the
/// caller receives apart: an output never becomes an input, nor a value that another output returns
/// already. A backward view may give way to a forward one, never the other way round.
PassResult merge_views(ir::Graph& graph);

}  // namespace tandem::passes
