#include "passes/drop_happened.h"

#include "base/error.h"
#include "ir/gradient_arguments.h"
#include "ops/op_table.h"
#include "ops/reads.h"
#include "passes/remove_dead_nodes.h"

namespace tandem::passes {

PassResult drop_happened(ir::Graph& graph, ir::NodeId last) {
  PassResult result;
  const auto happened = [&](const ir::Node& node) {
    return node.id() <= last && node.kind() == ir::NodeKind::Op && ops::info(node.op()).has_effect;
  };
  // What an erased node has read may be another one's result.
  bool dropped = true;
  while (dropped) {
    dropped = false;
    graph.for_each_node_reversed([&](ir::Node& node) {
      const bool effect = happened(node) && !ops::info(node.op()).random;
      const bool has_raised = node.id() <= last && removable(node) && ops::may_raise(graph, node);
      if (ops::is_read(graph, node) || !(effect || has_raised)) return;
      graph.erase(node);
      ++result.changes;
      dropped = true;
    });
    if (dropped) result.changes += remove_dead_nodes(graph).changes;
  }
  graph.for_each_node([&](const ir::Node& node) {
    if (!happened(node)) return;
    TANDEM_UNSUPPORTED("call", ir::name_of_backward(), " reads what ",
                       node.op().operator_name().name,
                       " returned, an op with effects, which must not happen twice",
                       base::detail_line("at", ir::to_string(node.location())),
                       "\n  remedy: call the op outside the compiled function");
  });
  return result;
}

}  // namespace tandem::passes
