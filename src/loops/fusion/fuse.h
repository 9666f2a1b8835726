#pragma once

#include "loops/fusion/index_space.h"
#include "loops/fusion/views.h"
#include "loops/rules/rule.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tandem::loops {

/// A node of a group, and when it is computed there.
struct Member {
  ir::NodeId node = ir::kNoNode;
  const Rule* rule = nullptr;
  bool inner = false;  // for every index of the reduced loops; else once per kept index
  int32_t stage = 0;   // one more than that of any reduction it reads
  DimLoops loops{};    // of its result; of a reduction: of its operand
};

/// Nodes that become one kernel: one space of loops, at most one set of them reduced.
struct KernelGroup {
  IndexSpace space{};
  std::vector<Member> members{};                      // in graph order
  std::unordered_map<ir::ValueId, DimLoops> loops{};  // of values computed and read
  bool has_reduction = false;
  bool column = false;  // the reduced loops have the large strides

  // ---- while it grows ----
  std::vector<int64_t> shape{};  // of its first node: what its loops were made for
  DimLoops shape_loops{};
  int32_t level = 0;  // producers have a smaller one, readers a larger one
  int32_t first_reader = INT32_MAX;
};

/// Which nodes are fused with which. A node in no group is a view, made of nothing where it is
/// read, or left to libtorch.
struct FusionPlan {
  std::vector<KernelGroup> groups{};
  std::vector<int32_t> group_of{};    // by NodeId; -1: none
  std::vector<const Rule*> source{};  // by NodeId: the rule of what is made again by each reader
};

/// One pass over the nodes: each joins the group with which it shares the most bytes, if the loops
/// fit and no path leaves that group and comes back.
FusionPlan fuse(const ir::Graph& graph, const Views& views, const Target& target);

/// The loops of an operand that is broadcast to a result with these loops.
DimLoops broadcast_loops(const DimLoops& result, const ir::TensorType& operand);

}  // namespace tandem::loops
