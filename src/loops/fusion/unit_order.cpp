#include "loops/fusion/unit_order.h"

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
      : graph_(graph), views_(views), plan_(plan), unit_of_(graph.node_limit(), -1) {
    unit_of_group_.assign(plan.groups.size(), -1);
    graph.for_each_node([&](const ir::Node& node) { place(node); });
    after_.resize(units_.size());
    waiting_.assign(units_.size(), 0);
  }

  std::vector<Unit> run() && {
    std::vector<int32_t> since_write;  // units since the last write
    int32_t last_write = -1, last_ordered = -1;
    std::vector<bool> seen(units_.size(), false);
    graph_.for_each_node([&](const ir::Node& node) {
      const int32_t unit = unit_of_[static_cast<size_t>(node.id())];
      if (unit < 0) return;
      // What is made of nothing has operands for their sizes only.
      if (plan_.source[static_cast<size_t>(node.id())] == nullptr) {
        for (const ir::Operand& operand : node.operands())
          operand.for_each_value([&](ir::ValueId id) { depend(unit, maker(id)); });
      }
      if (!seen[static_cast<size_t>(unit)]) {
        seen[static_cast<size_t>(unit)] = true;
        depend(unit, last_write);
        since_write.push_back(unit);
      }
      if (node.kind() == ir::NodeKind::Constant) return;
      const bool is_op = node.kind() == ir::NodeKind::Op;
      if (!is_op || ops::info(node.op()).must_happen()) {
        depend(unit, last_ordered);
        last_ordered = unit;
      }
      if (is_op && ops::info(node.op()).writes()) {
        for (int32_t before : since_write) depend(unit, before);
        since_write.clear();
        last_write = unit;
      }
    });
    return sorted();
  }

 private:
  void place(const ir::Node& node) {
    const auto at = static_cast<size_t>(node.id());
    ++position_;
    if (const int32_t group = plan_.group_of[at]; group >= 0) {
      int32_t& unit = unit_of_group_[static_cast<size_t>(group)];
      if (unit < 0) {
        unit = static_cast<int32_t>(units_.size());
        units_.push_back({.group = group});
        positions_.push_back(position_);
      }
      positions_[static_cast<size_t>(unit)] = position_;
      unit_of_[at] = unit;
      return;
    }
    if (plan_.source[at] != nullptr) return;
    if (views_.is_folded(node)) return;
    unit_of_[at] = static_cast<int32_t>(units_.size());
    units_.push_back({.node = node.id()});
    positions_.push_back(position_);
  }

  int32_t maker(ir::ValueId id) const {
    const ir::ValueId base = views_.behind(id).value;
    const ir::Value& value = graph_.value(base);
    return value.is_input() ? -1 : unit_of_[static_cast<size_t>(value.producer())];
  }

  void depend(int32_t unit, int32_t on) {
    if (on < 0 || on == unit) return;
    after_[static_cast<size_t>(on)].push_back(unit);
    ++waiting_[static_cast<size_t>(unit)];
  }

  std::vector<Unit> sorted() {
    using Ready = std::pair<int32_t, int32_t>;  // position, unit
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (size_t i = 0; i < units_.size(); ++i) {
      if (waiting_[i] == 0) ready.emplace(positions_[i], static_cast<int32_t>(i));
    }
    std::vector<Unit> out;
    while (!ready.empty()) {
      const auto unit = static_cast<size_t>(ready.top().second);
      ready.pop();
      out.push_back(units_[unit]);
      for (int32_t next : after_[unit]) {
        if (--waiting_[static_cast<size_t>(next)] == 0)
          ready.emplace(positions_[static_cast<size_t>(next)], next);
      }
    }
    TANDEM_CHECK(out.size() == units_.size(), "lower", "the kernels of graph ", graph_.name(),
                 " wait for each other");
    return out;
  }

  const ir::Graph& graph_;
  const Views& views_;
  const FusionPlan& plan_;
  std::vector<int32_t> unit_of_, unit_of_group_;
  std::vector<Unit> units_;
  std::vector<int32_t> positions_;  // of the last node
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> waiting_;
  int32_t position_ = 0;
};

}  // namespace

std::vector<Unit> order_units(const ir::Graph& graph, const Views& views, const FusionPlan& plan) {
  return Orderer(graph, views, plan).run();
}

}  // namespace tandem::loops
