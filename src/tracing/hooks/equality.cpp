#include "tracing/hooks/equality.h"

#include "ops/op_table.h"
#include "ops/own/check_not_equal.h"
#include "tracing/inputs/inputs.h"

#include <algorithm>

namespace tandem::tracing {
namespace {

/// Follows two values back to where they part.
class SameComputation {
 public:
  explicit SameComputation(const ir::Graph& graph) : graph_(graph) {}

  bool same(ir::ValueId a, ir::ValueId b) {
    a = without_views(a);
    b = without_views(b);
    if (a == b) return true;
    if (a == ir::kNoValue || b == ir::kNoValue || steps_left_-- <= 0) return false;
    if (graph_.value(a).is_input() || graph_.value(b).is_input()) return false;
    const ir::Node& x = graph_.node(graph_.value(a).producer());
    const ir::Node& y = graph_.node(graph_.value(b).producer());
    if (x.kind() != ir::NodeKind::Op || y.kind() != ir::NodeKind::Op || !(x.op() == y.op()) ||
        !ops::info(x.op()).mergeable() || position(x, a) != position(y, b)) {
      return false;
    }
    return std::ranges::equal(
        x.operands(), y.operands(),
        [this](const ir::Operand& left, const ir::Operand& right) { return same(left, right); });
  }

 private:
  /// A tensor that was written shows up as a view of the new data, element for element.
  ir::ValueId without_views(ir::ValueId id) const {
    while (id != ir::kNoValue && !graph_.value(id).is_input()) {
      const ir::Node& node = graph_.node(graph_.value(id).producer());
      if (node.kind() != ir::NodeKind::Op || !shows_all(node.op().operator_name().name)) break;
      const auto* source = node.operands()[0].get_if<ir::ValueId>();
      if (!source || !(graph_.value(*source).type() == graph_.value(id).type())) break;
      id = *source;
    }
    return id;
  }

  /// With the type of their operand, these hold its data in its order.
  static bool shows_all(const std::string& op) {
    return op == "aten::view" || op == "aten::alias" || op == "aten::detach";
  }

  bool same(const ir::Operand& a, const ir::Operand& b) {
    const auto *x = a.get_if<ir::ValueId>(), *y = b.get_if<ir::ValueId>();
    if (x && y) return same(*x, *y);
    const auto *xs = a.get_if<ir::Operand::Values>(), *ys = b.get_if<ir::Operand::Values>();
    if (!xs || !ys) return a == b;
    return std::ranges::equal(
        *xs, *ys, [this](ir::ValueId left, ir::ValueId right) { return same(left, right); });
  }

  static int64_t position(const ir::Node& node, ir::ValueId result) {
    return std::ranges::find(node.results(), result) - node.results().begin();
  }

  const ir::Graph& graph_;
  int steps_left_ = 1000;  // shared subtrees are walked again each time they are met
};

bool is_forward_input(const ir::Graph& graph, ir::ValueId value) {
  return graph.value(value).is_input() && graph.input_role(value).role != ir::Role::Tangent;
}

/// A call that a check ends is run again, eagerly: what has happened before would happen twice.
/// Asserts and checks only say no.
bool has_effects(const ir::Graph& graph) {
  bool found = false;
  graph.for_each_node([&](const ir::Node& node) {
    if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).has_effect) return;
    const std::string& name = node.op().operator_name().name;
    found = found || ops::info(node.op()).marked ||
            !(name.starts_with("aten::") || name.starts_with("tandem::"));
  });
  return found;
}

}  // namespace

std::optional<bool> answer_equal(Recording& recording, ir::ValueId a, ir::ValueId b) {
  ir::Graph& graph = recording.graph();
  if (graph.value(a).tensor_type()->sizes != graph.value(b).tensor_type()->sizes) return false;
  if (SameComputation(graph).same(a, b)) return true;
  if (is_forward_input(graph, a) && is_forward_input(graph, b)) {
    return recording.inputs().compare(a, b);
  }
  if (recording.phase() == ir::Phase::Backward || has_effects(graph)) return std::nullopt;
  graph.add_op({.op = ops::kCheckNotEqual.handle(),
                .operands = {ir::Operand(a), ir::Operand(b)},
                .phase = recording.phase()});
  return false;
}

}  // namespace tandem::tracing
