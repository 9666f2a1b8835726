#include "passes/remove_dead_nodes.h"

#include "ops/data_sizes.h"
#include "ops/op_table.h"
#include "ops/reads.h"
#include "tandem/ir/graph.h"

namespace tandem::passes {

bool removable(const ir::Node& node) {
  switch (node.kind()) {
    case ir::NodeKind::Op:
      return ops::info(node.op()).removable() && !ops::makes_size(node);
    case ir::NodeKind::Constant:
      return true;
    case ir::NodeKind::Region: {
      bool all = true;
      node.region().for_each_node([&](const ir::Node& inner) { all = all && removable(inner); });
      return all;
    }
  }
  return false;
}

PassResult remove_dead_nodes(ir::Graph& graph) {
  PassResult result;
  // Readers come after producers, so walking backwards frees a whole chain in one visit.
  graph.for_each_node_reversed([&](ir::Node& node) {
    if (ops::is_read(graph, node) || !removable(node) || ops::may_raise(graph, node)) return;
    graph.erase(node);
    ++result.changes;
  });
  return result;
}

}  // namespace tandem::passes
