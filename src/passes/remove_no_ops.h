#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Erases calls that return their first operand as it is: `alias`, `detach`, `lift_fresh`, and
/// `view`,
/// `_unsafe_view` and `expand` to the type that the operand has already.
///
/// Expects a functional graph. Keeps the tensors that the caller receives apart: an output never
/// becomes an input, nor a value that another output returns already.
PassResult remove_no_ops(ir::Graph& graph);

}  // namespace tandem::passes
