#include "graph_file.h"

#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <fmt/format.h>

#include <iostream>
#include <iterator>

namespace tandem::cli {

std::vector<ir::Graph> read_graphs(const std::string& file) {
  std::vector<ir::Graph> graphs;
  if (file == "-") {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    graphs = ir::parse_all(text);
  } else {
    graphs = ir::read_file(file);
  }
  if (graphs.empty()) {
    throw UserError(
        "parse", fmt::format("{} holds no graph\n  remedy: a graph starts with the word graph, see "
                             "docs/reference/graph-text.md",
                             display_name(file)));
  }
  return graphs;
}

std::string display_name(const std::string& file) { return file == "-" ? "standard input" : file; }

std::string counted(size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace tandem::cli
