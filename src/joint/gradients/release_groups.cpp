#include "joint/gradients/release_groups.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace tandem::joint {
namespace {

bool is_lazy(const tracing::StandIn& member, const tracing::Group& group) {
  return member.real.is_conj() != group.real.is_conj() ||
         member.real.is_neg() != group.real.is_neg();
}

std::string_view name_of_lazy_view(const tracing::StandIn& member, const tracing::Group& group) {
  return member.real.is_conj() != group.real.is_conj() ? "aten::_conj" : "aten::_neg_view";
}

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
    const auto shows = [&](size_t member, bool lazily) {
      const tracing::StandIn& one = trace.stand_ins()[member];
      return *graph.value(one.input).tensor_type() ==
                 *graph.value(node.results()[0]).tensor_type() &&
             offset == ir::Size(one.real.storage_offset()) && is_lazy(one, group) == lazily;
    };
    const auto member = std::ranges::find_if(
        group.members, [&](size_t position) { return shows(position, /*lazily=*/false); });
    if (member != group.members.end()) {
      graph.replace_all_uses(node.results()[0], trace.stand_ins()[*member].input);
      graph.erase(node);
      return;
    }
    // A lazy member shows it conjugated or negated: what is read is that.
    const auto lazy = std::ranges::find_if(
        group.members, [&](size_t position) { return shows(position, /*lazily=*/true); });
    if (lazy == group.members.end()) return;
    const tracing::StandIn& one = trace.stand_ins()[*lazy];
    const std::vector<ir::NodeId> readers(graph.value(node.results()[0]).users().begin(),
                                          graph.value(node.results()[0]).users().end());
    for (ir::NodeId reader : readers) {
      ir::Node& view = graph.node(reader);
      if (view.erased() || view.op().schema().name() != name_of_lazy_view(one, group)) continue;
      graph.replace_all_uses(view.results()[0], one.input);
      graph.erase(view);
    }
    if (!graph.value(node.results()[0]).has_users()) graph.erase(node);
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
