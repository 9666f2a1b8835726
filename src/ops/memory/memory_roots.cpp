#include "ops/memory/memory_roots.h"

#include "ops/op_table.h"

namespace tandem::ops {

std::vector<ir::ValueId> memory_roots(const ir::Graph& graph) {
  std::vector<ir::ValueId> roots(graph.value_limit(), ir::kNoValue);
  for (ir::ValueId input : graph.inputs()) roots[static_cast<size_t>(input)] = input;
  graph.for_each_node([&](const ir::Node& node) {
    ir::ValueId source = ir::kNoValue;
    if (node.kind() == ir::NodeKind::Op && !node.operands().empty() && info(node.op()).is_view) {
      if (const auto* operand = node.operands()[0].get_if<ir::ValueId>()) source = *operand;
    }
    for (ir::ValueId result : node.results()) {
      if (result == ir::kNoValue) continue;
      roots[static_cast<size_t>(result)] =
          source == ir::kNoValue ? result : roots[static_cast<size_t>(source)];
    }
  });
  return roots;
}

}  // namespace tandem::ops
