#pragma once

#include "tandem/ir/graph.h"

#include <string>
#include <vector>

namespace tandem::test {

/// Lines of the nodes of one op (`aten::mul`, any overload) and phase, in order: `net_test.cpp:12`,
/// without folders.
inline std::vector<std::string> lines_of(const ir::Graph& graph, const std::string& op,
                                         ir::Phase phase = ir::Phase::Forward) {
  std::vector<std::string> lines;
  graph.for_each_node([&](const ir::Node& node) {
    if (node.kind() != ir::NodeKind::Op || node.op().operator_name().name != op) return;
    if (node.phase() != phase) return;
    const std::string text = ir::to_string(node.location());
    lines.push_back(text.substr(text.rfind('/') + 1));
  });
  return lines;
}

/// The same for a line of this file.
inline std::string line_of(const char* file, int line) {
  const std::string path = file;
  return path.substr(path.rfind('/') + 1) + ":" + std::to_string(line);
}

}  // namespace tandem::test
