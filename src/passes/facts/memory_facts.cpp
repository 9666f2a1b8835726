#include "passes/facts/memory_facts.h"

#include "ops/memory/memory_roots.h"
#include "ops/memory/view_offset.h"
#include "ops/op_table.h"

namespace tandem::passes {
namespace {

bool is_scatter(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  const std::string& name = node.op().operator_name().name;
  return name == "aten::slice_scatter" || name == "aten::select_scatter" ||
         name == "aten::diagonal_scatter";
}

}  // namespace

bool reinterprets(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  const c10::OperatorName& op = node.op().operator_name();
  return op.name == "aten::view_as_real" || op.name == "aten::view_as_complex" ||
         (op.name == "aten::view" && op.overload_name == "dtype");
}

ir::ValueId tensor_at(const ir::Node& node, size_t operand) {
  const auto* id = node.operands()[operand].get_if<ir::ValueId>();
  return id == nullptr ? ir::kNoValue : *id;
}

MemoryFacts::MemoryFacts(const ir::Graph& graph) : graph_(graph), flags_(graph.value_limit(), 0) {
  const std::vector<ir::ValueId> roots = ops::memory_roots(graph);
  const auto add_flag = [&](ir::ValueId value, Flag flag) {
    uint8_t& flags = flags_[static_cast<size_t>(roots[static_cast<size_t>(value)])];
    flags = static_cast<uint8_t>(flags | flag);
  };
  for (ir::ValueId input : graph.inputs()) add_flag(input, kInput);
  for (const ir::Output& output : graph.outputs()) {
    if (output.value != ir::kNoValue) add_flag(output.value, kReturned);
  }
  graph.for_each_node([&](const ir::Node& node) {
    bool writes = false, addresses = false;
    if (node.kind() == ir::NodeKind::Op) {
      const ops::OpInfo& info = ops::info(node.op());
      writes = info.writes();
      addresses = node.op().operator_name().name.starts_with("aten::as_strided");
      // The scatters keep the offset of what they copy, and so show where it lay.
      if (is_scatter(node)) add_flag(*node.operands()[0].get_if<ir::ValueId>(), kScattered);
      if (reinterprets(node)) add_flag(*node.operands()[0].get_if<ir::ValueId>(), kReinterpreted);
    }
    // A region may be computed again in the backward.
    const bool backward =
        node.phase() == ir::Phase::Backward || node.kind() == ir::NodeKind::Region;
    if (!writes && !backward && !addresses) return;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        if (writes) add_flag(id, kWritten);
        if (backward) add_flag(id, kReadByBackward);
        if (addresses) add_flag(id, kAddressed);
      });
    }
  });
}

// Walked every time: the graph is being edited.
ir::ValueId MemoryFacts::root(ir::ValueId value) const {
  while (true) {
    const ir::NodeId producer = graph_.value(value).producer();
    if (producer == ir::kNoNode) return value;
    const ir::Node& node = graph_.node(producer);
    if (node.kind() != ir::NodeKind::Op || node.operands().empty() || !ops::info(node.op()).is_view)
      return value;
    const auto* source = node.operands()[0].get_if<ir::ValueId>();
    if (source == nullptr || *source == ir::kNoValue) return value;
    value = *source;
  }
}

uint8_t MemoryFacts::flags(ir::ValueId value) const {
  const auto at = static_cast<size_t>(root(value));
  return at < flags_.size() ? flags_[at] : uint8_t{0};
}

bool MemoryFacts::may_be_lazy(ir::ValueId value) const {
  while (true) {
    const ir::Value& here = graph_.value(value);
    // Tangents arrive as plain tensors, other inputs as the caller has them.
    if (here.is_input()) return graph_.input_role(value).role != ir::Role::Tangent;
    const ir::Node& node = graph_.node(here.producer());
    if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view) return false;
    if (!ops::offset_in_source(graph_, node, static_cast<size_t>(here.result_index()))) return true;
    value = *node.operands()[0].get_if<ir::ValueId>();
  }
}

bool MemoryFacts::is_pinned(ir::ValueId value) const {
  return (flags(value) & (kReturned | kWritten)) != 0;
}

bool MemoryFacts::may_leave_out(ir::ValueId copy, ir::ValueId source) const {
  const uint8_t of_copy = flags(copy), of_source = flags(source);
  if ((of_copy & (kReturned | kWritten | kAddressed)) != 0 || (of_source & kWritten) != 0)
    return false;
  const ir::NodeId maker = graph_.value(root(copy)).producer();
  const bool keeps_offset = maker != ir::kNoNode && is_scatter(graph_.node(maker));
  if ((of_copy & kScattered) != 0 && !keeps_offset) return false;
  if ((of_copy & kReinterpreted) != 0 && may_be_lazy(source)) return false;
  // Between forward and backward the caller may write to what it has; eager's copy would not mind.
  const bool made_in_forward =
      maker == ir::kNoNode || graph_.node(maker).phase() == ir::Phase::Forward;
  return !(made_in_forward && (of_copy & kReadByBackward) != 0 &&
           (of_source & (kInput | kReturned)) != 0);
}

void MemoryFacts::replaced(ir::ValueId gone, ir::ValueId kept) {
  const uint8_t inherited = flags(gone) & static_cast<uint8_t>(~kInput);
  const auto at = static_cast<size_t>(root(kept));
  if (at >= flags_.size()) flags_.resize(at + 1, 0);
  flags_[at] = static_cast<uint8_t>(flags_[at] | inherited);
}

bool would_merge_outputs(const ir::Value& source, const ir::Value& result) {
  if (result.output_uses() == 0) return false;
  return source.is_input() || source.output_uses() > 0;
}

TangentUse::TangentUse(const ir::Graph& graph) : depends_(graph.value_limit(), false) {
  for (ir::ValueId input : graph.inputs()) {
    if (graph.input_role(input).role == ir::Role::Tangent)
      depends_[static_cast<size_t>(input)] = true;
  }
  graph.for_each_node([&](const ir::Node& node) {
    bool any = false;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value(
          [&](ir::ValueId id) { any = any || depends_[static_cast<size_t>(id)]; });
    }
    if (!any) return;
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue) depends_[static_cast<size_t>(id)] = true;
    }
  });
}

bool TangentUse::depends(ir::ValueId value) const {
  const auto at = static_cast<size_t>(value);
  return at >= depends_.size() || depends_[at];
}

}  // namespace tandem::passes
