#include "joint/gradients/release_groups.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

namespace tandem::joint {
namespace {

/// A member, and the ops by which it is taken of the base, first to last.
struct Way {
  ir::ValueId input;
  std::vector<ir::NodeId> steps{};
};

Way way_to(const ir::Graph& graph, const tracing::Group& group, const tracing::StandIn& member) {
  Way way{.input = member.input};
  for (ir::ValueId value = member.first_value; value != group.input;) {
    way.steps.push_back(graph.value(value).producer());
    value = *graph.node(way.steps.back()).operands()[0].get_if<ir::ValueId>();
  }
  std::ranges::reverse(way.steps);
  return way;
}

/// Whether two views of values that show the same show the same, too.
bool is_same_view(const ir::Graph& graph, const tracing::Group& group, const ir::Node& a,
                  const ir::Node& b) {
  if (a.op() != b.op() || a.operands().size() != b.operands().size()) return false;
  const auto type = [&](const ir::Node& node) {
    return *graph.value(node.results()[0]).tensor_type();
  };
  if (!(type(a) == type(b))) return false;
  if (a.op().schema().name() == "aten::as_strided") {
    // Left unsaid, it is that of the base.
    const auto offset = [&](const ir::Node& node) {
      const auto* said = node.operands().back().get_if<ir::Size>();
      return said ? *said : ir::Size(group.real.storage_offset());
    };
    return offset(a) == offset(b);
  }
  return std::equal(a.operands().begin() + 1, a.operands().end(), b.operands().begin() + 1);
}

/// Views of the base that are made again later (for an in-place view of a member) show what a
/// member shows. `seen`: all views on the way.
std::vector<ir::ValueId> taken_likewise(const ir::Graph& graph, const tracing::Group& group,
                                        const Way& way, std::set<ir::NodeId>& seen) {
  std::vector<ir::ValueId> values{group.input};
  for (ir::NodeId step : way.steps) {
    std::vector<ir::ValueId> next;
    for (ir::ValueId value : values) {
      for (ir::NodeId reader : graph.value(value).users()) {
        const ir::Node& node = graph.node(reader);
        if (node.kind() != ir::NodeKind::Op || node.results().size() != 1) continue;
        if (!is_same_view(graph, group, graph.node(step), node)) continue;
        seen.insert(reader);
        next.push_back(node.results()[0]);
      }
    }
    values = std::move(next);
  }
  return values;
}

void replace_views(ir::Graph& graph, const tracing::Trace& trace, const tracing::Group& group) {
  std::vector<Way> ways;
  for (size_t member : group.members)
    ways.push_back(way_to(graph, group, trace.stand_ins()[member]));
  // The longest first: a shorter one may be the beginning of its way.
  std::ranges::stable_sort(ways, std::greater<>(), [](const Way& way) { return way.steps.size(); });
  std::set<ir::NodeId> seen;
  for (const Way& way : ways) {
    for (ir::ValueId value : taken_likewise(graph, group, way, seen))
      graph.replace_all_uses(value, way.input);
  }
  graph.for_each_node_reversed([&](ir::Node& node) {
    if (seen.contains(node.id()) && !graph.value(node.results()[0]).has_users()) graph.erase(node);
  });
}

}  // namespace

void release_groups(tracing::Trace& trace, const std::vector<size_t>& written) {
  ir::Graph& graph = trace.recording().graph();
  for (size_t i = 0; i < trace.groups().size(); ++i) {
    if (std::ranges::find(written, i) != written.end()) continue;
    const tracing::Group& group = trace.groups()[i];
    replace_views(graph, trace, group);
    graph.erase_input(group.input);
  }
}

bool is_view_member(const tracing::Trace& trace, const tracing::StandIn& stand_in) {
  if (stand_in.group < 0) return false;
  const tracing::Group& group = trace.groups()[static_cast<size_t>(stand_in.group)];
  return group.is_root && !stand_in.tensor.is_same(group.tensor);
}

}  // namespace tandem::joint
