#include "ops/reads.h"

#include "ops/numbers_fit.h"
#include "ops/op_table.h"
#include "shapes/reach.h"

#include <algorithm>
#include <ranges>

namespace tandem::ops {
namespace {

/// In training, batch norm takes its running statistics along and looks at none of them.
bool is_passed_along(const ir::Node& node, size_t operand, const std::vector<bool>& needed) {
  if (operand != 3 && operand != 4) return false;
  const std::string& name = node.op().operator_name().name;
  const auto trains = [&](size_t at) {
    const bool* training = node.operands()[at].get_if<bool>();
    return training && *training;
  };
  if (name == "aten::native_batch_norm_backward") return trains(7);
  return name == "aten::_native_batch_norm_legit_functional" && trains(5) &&
         !needed[static_cast<size_t>(node.results()[operand])];
}

/// A divisor that is a number and not zero.
bool divides_by_a_number(const ir::Node& node) {
  const ir::Operand& divisor = node.operands()[1];
  const auto* size = divisor.get_if<ir::Size>();
  return size != nullptr && size->maybe_value().value_or(0) != 0;
}

bool is_integral(const ir::Value& value) {
  return value.tensor_type() != nullptr &&
         c10::isIntegralType(value.tensor_type()->dtype, /*includeBool=*/true);
}

bool asks_for_errors(const ir::Node& node, int32_t argument) {
  const bool* flag =
      argument < 0 ? nullptr : node.operands()[static_cast<size_t>(argument)].get_if<bool>();
  return flag != nullptr && *flag;
}

/// as_strided() beyond the end of what it is taken of: whether the memory goes on there is not in
/// the graph.
bool leaves_its_operand(const ir::Graph& graph, const ir::Node& node) {
  if (node.op().operator_name().name != "aten::as_strided") return false;
  const ir::TypePtr& taken = graph.value(node.results()[0]).tensor_type();
  const auto* source = node.operands()[0].get_if<ir::ValueId>();
  if (source == nullptr || taken == nullptr) return true;
  const ir::TypePtr& whole = graph.value(*source).tensor_type();
  if (!taken->is_static() || !whole->is_static()) return true;
  const auto* offset = node.operands()[3].get_if<ir::Size>();
  const int64_t first = offset == nullptr ? 0 : offset->maybe_value().value_or(0);
  return first + shapes::reach(taken->static_sizes(), taken->static_strides()) >
         shapes::reach(whole->static_sizes(), whole->static_strides());
}

bool kernel_may_raise(const ir::Graph& graph, const ir::Node& node) {
  const OpInfo& known = info(node.op());
  if (known.raises || asks_for_errors(node, known.raises_if)) return true;
  // Some kernels convert a number that does not fit, others refuse it.
  if (!numbers_fit(graph, node) || leaves_its_operand(graph, node)) return true;
  return known.raises_on_integers && node.results()[0] != ir::kNoValue &&
         is_integral(graph.value(node.results()[0])) && !divides_by_a_number(node);
}

}  // namespace

bool may_raise(const ir::Graph& graph, const ir::Node& node) {
  if (node.phase() != ir::Phase::Forward) return false;
  switch (node.kind()) {
    case ir::NodeKind::Op:
      return kernel_may_raise(graph, node);
    case ir::NodeKind::Constant:
      return false;
    case ir::NodeKind::Region: {
      bool any = false;
      node.region().for_each_node(
          [&](const ir::Node& inner) { any = any || may_raise(node.region(), inner); });
      return any;
    }
  }
  return false;
}

bool is_read(const ir::Graph& graph, const ir::Node& node) {
  return std::ranges::any_of(node.results(), [&](ir::ValueId id) {
    return id != ir::kNoValue && graph.value(id).has_users();
  });
}

std::vector<bool> read_by_gradients(const ir::Graph& joint, Draws count_draws) {
  std::vector<bool> needed(joint.value_limit());
  for (const ir::Output& output : joint.outputs()) {
    if (output.role.role == ir::Role::Grad && output.value != ir::kNoValue)
      needed[static_cast<size_t>(output.value)] = true;
  }
  std::vector<const ir::Node*> nodes;
  joint.for_each_node([&](const ir::Node& node) { nodes.push_back(&node); });
  for (const ir::Node* node : nodes | std::views::reverse) {
    const bool draws = count_draws == Draws::Count && node->kind() == ir::NodeKind::Op &&
                       !info(node->op()).removable();
    const bool any = draws || std::ranges::any_of(node->results(), [&](ir::ValueId id) {
                       return id != ir::kNoValue && needed[static_cast<size_t>(id)];
                     });
    if (!any) continue;
    for (size_t i = 0; i < node->operands().size(); ++i) {
      if (node->kind() == ir::NodeKind::Op && is_passed_along(*node, i, needed)) continue;
      node->operands()[i].for_each_value(
          [&](ir::ValueId id) { needed[static_cast<size_t>(id)] = true; });
    }
  }
  std::vector<bool> reads;
  for (ir::ValueId input : joint.inputs()) reads.push_back(needed[static_cast<size_t>(input)]);
  return reads;
}

bool counts_from_storage_start(const ir::Graph& graph) {
  bool found = false;
  graph.for_each_node([&](const ir::Node& node) {
    found = found || (node.kind() == ir::NodeKind::Op &&
                      node.op().operator_name().name.starts_with("aten::as_strided"));
  });
  return found;
}

}  // namespace tandem::ops
