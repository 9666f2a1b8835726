#pragma once

#include "loops/fusion/fuse.h"

#include <vector>

namespace tandem::loops {

/// What is done in one go: a kernel, or one node.
struct KernelOrNode {
  int32_t group = -1;
  ir::NodeId node = ir::kNoNode;  // if it is no group
};

/// All of them in an order that respects what they read, the order of draws and effects, and
/// writes; else as near to the graph's as can be. Views that index arithmetic stands for are left
/// out, and what every reader makes by itself.
std::vector<KernelOrNode> order_steps(const ir::Graph& graph, const Views& views,
                                      const FusionPlan& plan);

}  // namespace tandem::loops
