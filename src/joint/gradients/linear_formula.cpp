#include "joint/gradients/linear_formula.h"

#include "joint/gradients/marks.h"
#include "ops/op_table.h"
#include "ops/own/arrives.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tandem::joint {
namespace {

template <size_t kCount>
bool is_among(std::string_view name, const std::array<std::string_view, kCount>& names) {
  return std::ranges::find(names, name) != names.end();
}

/// `read`: the operands that depend on a gradient, once per mention.
bool is_linear_op(const ir::Node& node, const std::vector<size_t>& read) {
  if (node.kind() != ir::NodeKind::Op) return false;
  if (ops::kArrives.is(node) || ops::kEither.is(node)) return true;
  const c10::OperatorName& op = node.op().operator_name();
  std::string_view name = op.name;
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(std::string_view("aten::").size());
  const bool only_first = std::ranges::all_of(read, [](size_t at) { return at == 0; });
  // A sum with a constant is not linear: two backwards would add it twice.
  if (name == "add" || name == "sub") return op.overload_name == "Tensor" && read.size() == 2;
  if (is_among<5>(name, {"mul", "mm", "bmm", "mv", "dot"})) return read.size() == 1;
  if (is_among<7>(name, {"neg", "sum", "mean", "clone", "_to_copy", "cumsum", "flip"}))
    return only_first;
  // Formulas take their gradient first.
  return (name == "div" || ops::info(node.op()).is_view || name.ends_with("_backward")) &&
         only_first && read.size() == 1;
}

bool makes_zeros(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  const std::string_view name = node.op().operator_name().name;
  return name == "aten::zeros" || name == "aten::zeros_like" || name == "aten::new_zeros";
}

}  // namespace

bool is_linear(const ir::Graph& graph, ir::NodeId after,
               const std::function<bool(ir::ValueId)>& depends,
               std::span<const ir::ValueId> results) {
  std::unordered_set<ir::ValueId> zeros;
  const auto counts = [&](ir::ValueId value) { return zeros.contains(value) || depends(value); };
  for (ir::NodeId id = following(graph, after); id != ir::kNoNode; id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    std::vector<size_t> read;
    for (size_t i = 0; i < node.operands().size(); ++i) {
      node.operands()[i].for_each_value([&](ir::ValueId value) {
        if (counts(value)) read.push_back(i);
      });
    }
    if (!makes_zeros(node)) {
      if (read.empty()) continue;
      if (!is_linear_op(node, read)) return false;
    }
    for (ir::ValueId result : node.results()) {
      if (result != ir::kNoValue) zeros.insert(result);
    }
  }
  return std::ranges::all_of(results, counts);
}

}  // namespace tandem::joint
