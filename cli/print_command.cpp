#include "commands.h"
#include "graph_file.h"
#include "tandem/ir/text.h"

#include <iostream>

namespace tandem::cli {

void print_graphs(const std::string& file) {
  const char* separator = "";
  for (const ir::Graph& graph : read_graphs(file)) {
    std::cout << separator << ir::print(graph);
    separator = "\n";
  }
}

}  // namespace tandem::cli
