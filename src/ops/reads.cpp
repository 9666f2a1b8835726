#include "ops/reads.h"

#include "ops/op_table.h"

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

}  // namespace

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
