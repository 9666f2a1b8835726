#include "commands.h"
#include "graph_file.h"
#include "tandem/ir/text.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace tandem::cli {
namespace {

/// `T`: Saved or Recomputed.
template <class T>
void print_reasons(const char* what, const std::vector<T>& values) {
  int64_t bytes = 0;
  for (const T& value : values) bytes += value.bytes;
  std::cerr << fmt::format("# {}: {}, {} bytes\n", what, counted(values.size(), "value"), bytes);
  for (const T& value : values) {
    std::cerr << fmt::format("#   {:>12}  %{}: {}{}\n", value.bytes, value.name, value.why,
                             value.line.empty() ? "" : " (" + value.line + ")");
  }
}

}  // namespace

void split_graphs(const SplitOptions& options) {
  const Partitioner partitioner = options.partitioner == "default"   ? default_partition
                                  : options.partitioner == "min_cut" ? min_cut
                                                                     : min_cut_recompute;
  const Options asked{.backend = find_backend(options.backend)};
  const char* separator = "";
  for (ir::Graph& graph : read_graphs(options.file)) {
    Joint joint;
    joint.graph = std::move(graph);
    joint.signature.training = std::ranges::any_of(joint.graph.inputs(), [&](ir::ValueId input) {
      return joint.graph.input_role(input).role == ir::Role::Tangent;
    });
    const Split parts = partitioner(joint, asked);
    std::cout << separator << ir::print(parts.forward);
    separator = "\n";
    if (!joint.signature.training) continue;
    std::cout << separator << ir::print(parts.backward);
    print_reasons("saved", parts.saved);
    if (!parts.recomputed.empty()) print_reasons("computed again", parts.recomputed);
  }
}

}  // namespace tandem::cli
