#include "commands.h"
#include "graph_file.h"

#include <fmt/format.h>

#include <iostream>

namespace tandem::cli {

void verify_graphs(const std::string& file) {
  // Reading checks: a graph that breaks a rule does not get here.
  for (const ir::Graph& graph : read_graphs(file)) {
    std::cout << fmt::format("graph {}: well-formed, {}, {}, {}\n", graph.name(),
                             counted(graph.inputs().size(), "input"),
                             counted(graph.node_count(), "node"),
                             counted(graph.outputs().size(), "output"));
  }
}

}  // namespace tandem::cli
