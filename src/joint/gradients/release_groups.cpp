#include "joint/gradients/release_groups.h"

#include <algorithm>

namespace tandem::joint {
namespace {

/// Views of the base that are made again later (for an in-place view of a member) show what a
/// member shows.
void replace_views(tracing::Trace& trace, const tracing::Group& group) {
  ir::Graph& graph = trace.recording().graph();
  graph.for_each_node_reversed([&](ir::Node& node) {
    const auto* source =
        node.operands().empty() ? nullptr : node.operands()[0].get_if<ir::ValueId>();
    if (!source || *source != group.input) return;
    if (node.op().schema().name() != "aten::as_strided") return;
    // Left unsaid, it is that of the base.
    const auto* said = node.operands().back().get_if<ir::Size>();
    const ir::Size offset = said ? *said : ir::Size(group.real.storage_offset());
    const auto shows = [&](size_t member) {
      const tracing::StandIn& one = trace.stand_ins()[member];
      return *graph.value(one.input).tensor_type() ==
                 *graph.value(node.results()[0]).tensor_type() &&
             offset == ir::Size(one.real.storage_offset());
    };
    const auto member = std::ranges::find_if(group.members, shows);
    if (member == group.members.end()) return;
    graph.replace_all_uses(node.results()[0], trace.stand_ins()[*member].input);
    graph.erase(node);
  });
}

}  // namespace

void release_groups(tracing::Trace& trace, const std::vector<size_t>& written) {
  ir::Graph& graph = trace.recording().graph();
  for (size_t i = 0; i < trace.groups().size(); ++i) {
    if (std::ranges::find(written, i) != written.end()) continue;
    const tracing::Group& group = trace.groups()[i];
    for (size_t member : group.members) {
      const tracing::StandIn& one = trace.stand_ins()[member];
      graph.replace_all_uses(one.first_value, one.input);
    }
    replace_views(trace, group);
    graph.erase_input(group.input);
  }
}

bool is_view_member(const tracing::Trace& trace, const tracing::StandIn& stand_in) {
  if (stand_in.group < 0) return false;
  const tracing::Group& group = trace.groups()[static_cast<size_t>(stand_in.group)];
  return group.is_root && !stand_in.tensor.is_same(group.tensor);
}

}  // namespace tandem::joint
