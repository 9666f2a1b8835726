#include "loops/fusion/step_order.h"

#include "base/error.h"
#include "ops/op_table.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace tandem::loops {
namespace {

class Orderer {
 public:
  Orderer(const ir::Graph& graph, const Views& views, const FusionPlan& plan)
      : graph_(graph), views_(views), plan_(plan), step_of_(graph.node_limit(), -1) {
    step_of_group_.assign(plan.groups.size(), -1);
    graph.for_each_node([&](const ir::Node& node) { place(node); });
    after_.resize(steps_.size());
    waiting_.assign(steps_.size(), 0);
  }

  std::vector<KernelOrNode> run() && {
    std::vector<int32_t> since_write;  // steps since the last write
    int32_t last_write = -1, last_ordered = -1;
    std::vector<bool> seen(steps_.size(), false);
    graph_.for_each_node([&](const ir::Node& node) {
      const int32_t step = step_of_[static_cast<size_t>(node.id())];
      if (step < 0) return;
      // What is made of nothing has operands for their sizes only.
      if (plan_.source[static_cast<size_t>(node.id())] == nullptr) {
        for (const ir::Operand& operand : node.operands())
          operand.for_each_value([&](ir::ValueId id) { depend(step, maker(id)); });
      }
      if (!seen[static_cast<size_t>(step)]) {
        seen[static_cast<size_t>(step)] = true;
        depend(step, last_write);
        since_write.push_back(step);
      }
      if (node.kind() == ir::NodeKind::Constant) return;
      const bool is_op = node.kind() == ir::NodeKind::Op;
      if (!is_op || ops::info(node.op()).must_happen()) {
        depend(step, last_ordered);
        last_ordered = step;
      }
      if (is_op && ops::info(node.op()).writes()) {
        for (int32_t before : since_write) depend(step, before);
        since_write.clear();
        last_write = step;
      }
    });
    return sorted();
  }

 private:
  void place(const ir::Node& node) {
    const auto at = static_cast<size_t>(node.id());
    ++position_;
    if (const int32_t group = plan_.group_of[at]; group >= 0) {
      int32_t& step = step_of_group_[static_cast<size_t>(group)];
      if (step < 0) {
        step = static_cast<int32_t>(steps_.size());
        steps_.push_back({.group = group});
        positions_.push_back(position_);
      }
      positions_[static_cast<size_t>(step)] = position_;
      step_of_[at] = step;
      return;
    }
    if (plan_.source[at] != nullptr) return;
    if (views_.is_folded(node)) return;
    step_of_[at] = static_cast<int32_t>(steps_.size());
    steps_.push_back({.node = node.id()});
    positions_.push_back(position_);
  }

  int32_t maker(ir::ValueId id) const {
    const ir::ValueId base = views_.behind(id).value;
    const ir::Value& value = graph_.value(base);
    return value.is_input() ? -1 : step_of_[static_cast<size_t>(value.producer())];
  }

  void depend(int32_t step, int32_t on) {
    if (on < 0 || on == step) return;
    after_[static_cast<size_t>(on)].push_back(step);
    ++waiting_[static_cast<size_t>(step)];
  }

  std::vector<KernelOrNode> sorted() {
    using Ready = std::pair<int32_t, int32_t>;  // position, step
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (waiting_[i] == 0) ready.emplace(positions_[i], static_cast<int32_t>(i));
    }
    std::vector<KernelOrNode> out;
    while (!ready.empty()) {
      const auto step = static_cast<size_t>(ready.top().second);
      ready.pop();
      out.push_back(steps_[step]);
      for (int32_t next : after_[step]) {
        if (--waiting_[static_cast<size_t>(next)] == 0)
          ready.emplace(positions_[static_cast<size_t>(next)], next);
      }
    }
    TANDEM_CHECK(out.size() == steps_.size(), "lower", "the kernels of graph ", graph_.name(),
                 " wait for each other");
    return out;
  }

  const ir::Graph& graph_;
  const Views& views_;
  const FusionPlan& plan_;
  std::vector<int32_t> step_of_, step_of_group_;
  std::vector<KernelOrNode> steps_;
  std::vector<int32_t> positions_;  // of the last node
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> waiting_;
  int32_t position_ = 0;
};

}  // namespace

std::vector<KernelOrNode> order_steps(const ir::Graph& graph, const Views& views,
                                      const FusionPlan& plan) {
  return Orderer(graph, views, plan).run();
}

}  // namespace tandem::loops
