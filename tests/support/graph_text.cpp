#include "support/graph_text.h"

#include "support/graph_surgeon.h"
#include "tandem/ir/text.h"

namespace tandem::test {
namespace {

bool has_locations(const ir::Graph& graph) {
  bool found = false;
  graph.for_each_node([&](const ir::Node& node) {
    found = found || node.location().known() ||
            (node.kind() == ir::NodeKind::Region && has_locations(node.region()));
  });
  return found;
}

ir::Graph without_locations(ir::Graph graph) {
  graph.for_each_node([&](ir::Node& node) {
    graph.set_location(node, {});
    if (node.kind() != ir::NodeKind::Region) return;
    ir::GraphSurgeon::set_region(node, without_locations(node.region()));
  });
  return graph;
}

}  // namespace

ir::Graph without_names(ir::Graph graph) {
  for (size_t i = 0; i < graph.value_limit(); ++i) graph.set_name(static_cast<ir::ValueId>(i), "");
  graph.for_each_node([&](ir::Node& node) {
    if (node.kind() != ir::NodeKind::Region) return;
    ir::GraphSurgeon::set_region(node, without_names(node.region()));
  });
  return graph;
}

::testing::AssertionResult same_graph(const ir::Graph& graph, std::string_view expected) {
  ir::Graph wanted = ir::parse(expected);
  ir::Graph found = has_locations(wanted) ? graph : without_locations(graph);
  if (ir::print(without_names(found)) == ir::print(without_names(wanted))) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "expected:\n"
                                       << ir::print(wanted) << "got:\n"
                                       << ir::print(found);
}

}  // namespace tandem::test
