#pragma once

#include "tandem/decomposition.h"
#include "tandem/pass.h"

namespace tandem::passes {

/// Replaces every call that the table has a body for, in the forward and the backward. What a body
/// makes is looked up again, so bodies may use ops that have one themselves.
///
/// Results keep their type to the stride: they are cast and copied where the body's differ. Calls
/// with symbolic sizes, without elements, of sparse or complex tensors stay, as do those whose body
/// declines. A body that does not fit its op is a UserError.
PassResult decompose(ir::Graph& graph, const Decompositions& table);

/// With Tandem's own table.
PassResult decompose(ir::Graph& graph);

}  // namespace tandem::passes
