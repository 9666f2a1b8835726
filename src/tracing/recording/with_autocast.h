#pragma once

#include "libtorch/thread_state.h"
#include "tandem/ir/graph.h"

namespace tandem::tracing {

/// The backward as autograd's formulas would have recorded it in this autocast state: every op is
/// dispatched again, with autocast on, and a result that comes out in another dtype is cast back,
/// as the engine casts gradients between two nodes.
///
/// Inputs and outputs keep their order, roles and types. Ops that were recorded as the bodies of
/// others are cast one by one; autocast casts the operands of matrix products, where that makes no
/// difference.
ir::Graph with_autocast(const ir::Graph& backward, const libtorch::AutocastState& state);

}  // namespace tandem::tracing
