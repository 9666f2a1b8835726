#include "joint/release_groups.h"

#include <algorithm>

namespace tandem::joint {

void release_groups(tracing::Trace& trace, const std::vector<size_t>& written) {
  ir::Graph& graph = trace.recording().graph();
  for (size_t i = 0; i < trace.groups().size(); ++i) {
    if (std::ranges::find(written, i) != written.end()) continue;
    const tracing::Group& group = trace.groups()[i];
    for (size_t member : group.members) {
      const tracing::StandIn& one = trace.stand_ins()[member];
      graph.replace_all_uses(one.entry_value, one.input);
    }
    // What is left are the views that the members were.
    graph.for_each_node_reversed([&](ir::Node& node) {
      if (node.operands().empty()) return;
      const auto* source = node.operands()[0].get_if<ir::ValueId>();
      if (source && *source == group.input) graph.erase(node);
    });
    graph.erase_input(group.input);
  }
}

bool is_view_member(const tracing::Trace& trace, const tracing::StandIn& stand_in) {
  if (stand_in.group < 0) return false;
  const tracing::Group& group = trace.groups()[static_cast<size_t>(stand_in.group)];
  return group.is_root && !stand_in.tensor.is_same(group.tensor);
}

}  // namespace tandem::joint
