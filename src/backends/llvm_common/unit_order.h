#pragma once

#include "backends/llvm_common/fuse.h"

#include <vector>

namespace tandem::backends::llvm_common {

/// What is done in one go: a kernel, or one node.
struct Unit {
  int32_t group = -1;
  ir::NodeId node = ir::kNoNode;  // if it is no group
};

/// All units in an order that respects what they read, the order of draws and effects, and writes;
/// else as near to the graph's as can be. Views that index arithmetic stands for are left out, and
/// what every reader makes by itself.
std::vector<Unit> order_units(const ir::Graph& graph, const FusionPlan& plan);

}  // namespace tandem::backends::llvm_common
