#pragma once

#include "tandem/ir/graph.h"

namespace tandem::partition {

/// Moves what depends on no tangent (values made again, views of saved ones) to just before the
/// first node that needs it, so that it lives no longer than it must. The order of the gradients,
/// of draws and of effects stays.
void schedule_backward(ir::Graph& backward);

}  // namespace tandem::partition
