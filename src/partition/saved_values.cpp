#include "partition/saved_values.h"

#include "base/error.h"
#include "ir/sized_type.h"
#include "ops/op_table.h"
#include "ops/own/inputs_in_backward.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <unordered_map>

namespace tandem::partition {
namespace {

size_t index(ir::ValueId id) { return static_cast<size_t>(id); }

ir::Location line_of(const ir::Graph& graph, ir::ValueId id) {
  const ir::NodeId producer = graph.value(id).producer();
  return producer == ir::kNoNode ? ir::Location() : graph.node(producer).location();
}

/// What a view was made from, or kNoValue for a value that is no repeatable view.
ir::ValueId view_source(const ir::Graph& graph, ir::ValueId id) {
  const ir::NodeId producer = graph.value(id).producer();
  if (producer == ir::kNoNode) return ir::kNoValue;
  const ir::Node& node = graph.node(producer);
  if (node.kind() != ir::NodeKind::Op || !is_repeatable(node)) return ir::kNoValue;
  return *node.operands()[0].get_if<ir::ValueId>();
}

/// The node that works with what `node` reads: views only pass it on.
const ir::Node& reader_through(const ir::Graph& graph, const ir::Node& node) {
  const ir::Node* reader = &node;
  while (is_repeatable(*reader) && !reader->results().empty() &&
         reader->results()[0] != ir::kNoValue) {
    const auto users = graph.value(reader->results()[0]).users();
    if (users.empty()) break;
    reader = &graph.node(*std::ranges::min_element(users));
  }
  return *reader;
}

bool is_constant(const ir::Graph& graph, ir::ValueId id) {
  const ir::NodeId producer = graph.value(id).producer();
  return producer != ir::kNoNode && graph.node(producer).kind() == ir::NodeKind::Constant;
}

/// Values of the forward that the backward reads, and the first reader of each.
class Crossings {
 public:
  explicit Crossings(const ir::Graph& joint) : joint_(joint), why_(joint.value_limit()) {
    joint.for_each_node([&](const ir::Node& node) {
      if (node.phase() != ir::Phase::Backward) return;
      const std::string why =
          base::str("read by ", op_name(reader_through(joint, node)), " in the backward");
      for (const ir::Operand& operand : node.operands()) {
        operand.for_each_value([&](ir::ValueId id) { add(id, why); });
      }
    });
    for (const ir::Output& output : joint.outputs()) {
      if (output.role.role != ir::Role::Grad || output.value == ir::kNoValue) continue;
      add(output.value, base::str("returned as ", ir::to_string(output.role)));
    }
  }

  const std::vector<ir::ValueId>& values() const { return values_; }
  bool contains(ir::ValueId id) const { return !why_[index(id)].empty(); }
  const std::string& why(ir::ValueId id) const { return why_[index(id)]; }

 private:
  bool belongs_to_forward(ir::ValueId id) const {
    const ir::Value& value = joint_.value(id);
    if (value.is_input()) return joint_.input_role(id).role != ir::Role::Tangent;
    return joint_.node(value.producer()).phase() == ir::Phase::Forward;
  }

  void add(ir::ValueId id, const std::string& why) {
    if (contains(id) || !belongs_to_forward(id)) return;
    why_[index(id)] = why;
    values_.push_back(id);
  }

  const ir::Graph& joint_;
  std::vector<ir::ValueId> values_;
  std::vector<std::string> why_;  // by value; empty: does not cross
};

/// What to save so that the backward has `id`: the value itself, or what it is a view of. kNoValue:
/// nothing.
ir::ValueId origin(const ir::Graph& joint, const Crossings& crossings, ir::ValueId id) {
  ir::ValueId best = id;
  for (ir::ValueId at = id;; at = view_source(joint, at)) {
    if (at == ir::kNoValue) return best;
    if (is_constant(joint, at)) return ir::kNoValue;
    // An input wins over the views of it; a value that is saved in any case wins over its views.
    if (joint.value(at).is_input() || crossings.contains(at)) best = at;
  }
}

}  // namespace

std::string op_name(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return node.label();
  std::string name = node.op().operator_name().name;
  if (size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, ".");
  const std::string& overload = node.op().operator_name().overload_name;
  return overload.empty() ? name : name + "." + overload;
}

bool is_repeatable(const ir::Node& node) {
  if (node.kind() == ir::NodeKind::Constant) return true;
  if (node.kind() != ir::NodeKind::Op) return false;
  const ops::OpInfo& info = ops::info(node.op());
  // Where the schema denies it, the program sees a tensor of its own.
  const bool declared = !node.op().schema().returns().empty() &&
                        node.op().schema().returns()[0].alias_info() != nullptr;
  if (!info.is_view || !declared || info.must_happen()) return false;
  if (node.operands().empty()) return false;
  const auto* source = node.operands()[0].get_if<ir::ValueId>();
  if (source == nullptr || *source == ir::kNoValue) return false;
  int64_t mentions = 0;
  for (const ir::Operand& operand : node.operands())
    operand.for_each_value([&](ir::ValueId) { ++mentions; });
  return mentions == 1;
}

std::vector<SavedValue> saved_values(const ir::Graph& joint) {
  const Crossings crossings(joint);
  std::vector<std::string> why(joint.value_limit());  // by value; empty: not saved
  for (ir::ValueId id : crossings.values()) {
    const ir::ValueId kept = origin(joint, crossings, id);
    if (kept == ir::kNoValue || !why[index(kept)].empty()) continue;
    if (joint.value(kept).tensor_type() == nullptr) {
      TANDEM_UNSUPPORTED("partition",
                         "a number computed at run time cannot be kept for the backward",
                         base::detail_line("at", ir::to_string(line_of(joint, kept))),
                         "\n  value:  %", joint.value(kept).name(), ", ", crossings.why(id),
                         "\n  remedy: keep it in a tensor instead of reading it with item()");
    }
    why[index(kept)] = joint.value(kept).is_input()
                           ? "an input that the backward reads (by reference, 0 bytes)"
                           : crossings.why(id);
  }

  std::vector<SavedValue> saved;
  auto take = [&](ir::ValueId id) {
    if (id != ir::kNoValue && !why[index(id)].empty())
      saved.push_back({.value = id, .why = why[index(id)]});
  };
  for (ir::ValueId input : joint.inputs()) take(input);
  joint.for_each_node([&](const ir::Node& node) { std::ranges::for_each(node.results(), take); });
  return saved;
}

void name_saved_values(ir::Graph& joint, const std::vector<SavedValue>& saved) {
  const std::vector<std::string> names = ir::value_names(joint);
  for (const SavedValue& value : saved) joint.set_name(value.value, names[index(value.value)]);
}

Saved describe(const ir::Graph& joint, const SavedValue& saved) {
  const ir::Value& value = joint.value(saved.value);
  Saved description{.name = saved.is_copy() ? value.name() + "_copy" : value.name(),
                    .bytes = 0,
                    .line = {},
                    .why = saved.why,
                    .how = saved.how};
  if (value.is_input() && !saved.is_copy()) return description;
  if (!value.is_input() && ops::kItself.is(joint.node(value.producer()))) {
    description.why = "an input that the backward writes (by reference, 0 bytes)";
    return description;
  }
  description.bytes = ir::expected_bytes(joint, *value.tensor_type());
  const ir::Location location = line_of(joint, saved.value);
  if (location.found()) description.line = ir::to_string(location);
  return description;
}

std::vector<Saved> saved_with_lines(const Split& split) {
  std::vector<Saved> saved = split.saved;
  for (const ir::Output& output : split.forward.outputs()) {
    if (output.role.role != ir::Role::Saved || output.value == ir::kNoValue) continue;
    const auto position = static_cast<size_t>(output.role.index);
    if (position >= saved.size() || !saved[position].line.empty()) continue;
    saved[position].line = ir::to_string(line_of(split.forward, output.value));
  }
  return saved;
}

std::vector<Recomputed> recomputed_with_lines(const Split& split) {
  std::vector<Recomputed> recomputed = split.recomputed;
  if (recomputed.empty()) return recomputed;
  const std::vector<std::string> names = ir::value_names(split.backward);
  std::unordered_map<std::string, ir::ValueId> values;
  split.backward.for_each_node([&](const ir::Node& node) {
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue) values.emplace(names[index(id)], id);
    }
  });
  for (Recomputed& one : recomputed) {
    const auto value = values.find(one.name);
    if (one.line.empty() && value != values.end())
      one.line = ir::to_string(line_of(split.backward, value->second));
  }
  return recomputed;
}

}  // namespace tandem::partition
