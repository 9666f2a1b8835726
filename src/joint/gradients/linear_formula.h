#pragma once

#include "tandem/ir/graph.h"

#include <functional>
#include <span>

namespace tandem::joint {

/// Whether what was recorded after the node `after` is certainly linear in the values that depend
/// on a gradient, and so is each of the results. Zeros that are made in between count as gradients:
/// a custom function gets them for what did not arrive. False if in doubt.
bool is_linear(const ir::Graph& graph, ir::NodeId after,
               const std::function<bool(ir::ValueId)>& depends,
               std::span<const ir::ValueId> results);

}  // namespace tandem::joint
