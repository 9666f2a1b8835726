#include "passes/remove_no_ops.h"

#include "ops/op_table.h"
#include "tandem/ir/graph.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tandem::passes {
namespace {

// Calls that are the identity whenever the type stays the same. `as_strided` and `slice` are not
// among them: they can keep the type and move the offset.
constexpr std::array<std::string_view, 6> kIdentities = {
    "aten::_unsafe_view", "aten::alias",      "aten::detach",
    "aten::expand",       "aten::lift_fresh", "aten::view",
};

bool is_identity(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op || node.results().size() != 1) return false;
  if (ops::info(node.op()).marked) return false;
  if (std::ranges::find(kIdentities, node.op().operator_name().name) == kIdentities.end())
    return false;
  const auto* source = node.operands()[0].get_if<ir::ValueId>();
  const ir::ValueId result = node.results()[0];
  return source != nullptr && *source != ir::kNoValue && result != ir::kNoValue &&
         graph.value(*source).type() == graph.value(result).type();
}

// The caller may write to what it receives, so it must not receive one tensor in two places.
bool would_merge_outputs(const ir::Value& source, const ir::Value& result) {
  if (result.output_uses() == 0) return false;
  return source.is_input() || source.output_uses() > 0;
}

}  // namespace

PassResult remove_no_ops(ir::Graph& graph) {
  PassResult result;
  graph.for_each_node([&](ir::Node& node) {
    if (!is_identity(graph, node)) return;
    const ir::ValueId source = *node.operands()[0].get_if<ir::ValueId>();
    if (would_merge_outputs(graph.value(source), graph.value(node.results()[0]))) return;
    graph.replace_all_uses(node.results()[0], source);
    graph.erase(node);
    ++result.changes;
  });
  return result;
}

}  // namespace tandem::passes
