#include "partition/schedule_backward.h"

#include "partition/halves.h"
#include "passes/remove_dead_nodes.h"

#include <algorithm>
#include <vector>

namespace tandem::partition {
namespace {

class Scheduler {
 public:
  explicit Scheduler(ir::Graph& graph)
      : graph_(graph), rank_(graph.node_limit(), 0), waits_(graph.node_limit(), false) {}

  void run() {
    std::vector<bool> of_tangent(graph_.value_limit(), false);
    for (ir::ValueId input : graph_.inputs()) {
      of_tangent[index(input)] = graph_.input_role(input).role == ir::Role::Tangent;
    }
    std::vector<ir::NodeId> anchors;
    int32_t rank = 0;
    graph_.for_each_node([&](const ir::Node& node) {
      rank_[index(node.id())] = rank++;
      bool anchored = !passes::removable(node);
      for_each_operand(node, [&](ir::ValueId id) { anchored = anchored || of_tangent[index(id)]; });
      for (ir::ValueId id : node.results()) {
        if (id != ir::kNoValue) of_tangent[index(id)] = anchored;
      }
      // A gradient that looks at no tangent: nobody moves it, so it pulls what it reads.
      for (ir::ValueId id : node.results())
        anchored = anchored || (id != ir::kNoValue && graph_.value(id).output_uses() > 0);
      if (anchored) {
        anchors.push_back(node.id());
      } else {
        waits_[index(node.id())] = true;
      }
    });
    for (ir::NodeId anchor : anchors) place_before(anchor);
  }

 private:
  template <class Id>
  static size_t index(Id id) {
    return static_cast<size_t>(id);
  }

  template <class Fn>
  static void for_each_operand(const ir::Node& node, const Fn& fn) {
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        if (id != ir::kNoValue) fn(id);
      });
    }
  }

  void place_before(ir::NodeId anchor) {
    std::vector<ir::NodeId> found{anchor};
    for (size_t i = 0; i < found.size(); ++i) {
      for_each_operand(graph_.node(found[i]), [&](ir::ValueId id) {
        const ir::NodeId producer = graph_.value(id).producer();
        if (producer == ir::kNoNode || !waits_[index(producer)]) return;
        waits_[index(producer)] = false;
        found.push_back(producer);
      });
    }
    std::sort(found.begin() + 1, found.end(),
              [&](ir::NodeId a, ir::NodeId b) { return rank_[index(a)] < rank_[index(b)]; });
    for (size_t i = 1; i < found.size(); ++i)
      graph_.move_before(graph_.node(found[i]), graph_.node(anchor));
  }

  ir::Graph& graph_;
  std::vector<int32_t> rank_;  // by node: its place before anything moves
  std::vector<bool> waits_;    // by node: not placed yet
};

}  // namespace

void schedule_backward(ir::Graph& backward) { Scheduler(backward).run(); }

}  // namespace tandem::partition
