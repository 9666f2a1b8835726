#include "partition/min_cut/cut_graph.h"

#include "ir/sized_type.h"
#include "ops/memory/memory_roots.h"
#include "ops/op_table.h"
#include "partition/halves.h"
#include "partition/min_cut/flow_network.h"
#include "passes/remove_dead_nodes.h"

#include <algorithm>

namespace tandem::partition {
namespace {

int64_t bytes_of(const ir::Graph& joint, const ir::Type& type) {
  return type.tensor == nullptr ? 1 : ir::expected_bytes(joint, *type.tensor);
}

bool is_fractional(const ir::Value& value) {
  return value.tensor_type() != nullptr && (c10::isFloatingType(value.tensor_type()->dtype) ||
                                            c10::isComplexType(value.tensor_type()->dtype));
}

/// Whether the node makes fractions of operands that have none, and is told no dtype: the dtype is
/// then the thread's default.
bool follows_default_dtype(const ir::Graph& joint, const ir::Node& node) {
  const bool makes = std::ranges::any_of(node.results(), [&](ir::ValueId id) {
    return id != ir::kNoValue && is_fractional(joint.value(id));
  });
  bool told = !makes || node.kind() != ir::NodeKind::Op;
  for (const ir::Operand& operand : node.operands()) {
    told = told || operand.get_if<c10::ScalarType>() != nullptr;
    operand.for_each_value([&](ir::ValueId id) {
      told = told || (id != ir::kNoValue && is_fractional(joint.value(id)));
    });
  }
  return !told;
}

ItemFacts facts_of(const ir::Graph& joint, const ir::Node& node, const CanFuse& can_fuse) {
  ItemFacts facts{.node = node.id()};
  facts.follows_default_dtype = follows_default_dtype(joint, node);
  facts.pure = passes::removable(node);
  facts.in_backward = node.phase() == ir::Phase::Backward;
  switch (node.kind()) {
    case ir::NodeKind::Op:
      facts.is_view = ops::info(node.op()).is_view;
      facts.fusible = facts.pure && (facts.is_view || can_fuse(joint, node));
      break;
    case ir::NodeKind::Constant:
      facts.is_constant = true;
      facts.fusible = false;
      break;
    case ir::NodeKind::Region:
      facts.fusible = false;
      break;
  }
  return facts;
}

}  // namespace

bool fuses_nothing(const ir::Graph&, const ir::Node&) { return false; }

bool fuses_sweeps(const ir::Graph&, const ir::Node& node) {
  return node.kind() == ir::NodeKind::Op && ops::info(node.op()).work != ops::Work::Other;
}

CutGraph::CutGraph(const ir::Graph& joint, const CanFuse& can_fuse)
    : item_of_value_(joint.value_limit(), kNoItem) {
  facts_.reserve(joint.inputs().size() + joint.node_count());
  first_operand_.reserve(facts_.capacity() + 1);
  add_inputs(joint);
  joint.for_each_node([&](const ir::Node& node) { add_node(joint, node, can_fuse); });
  first_operand_.push_back(static_cast<int32_t>(operands_.size()));
  link();
  const std::vector<ir::ValueId> memory = ops::memory_roots(joint);
  for (ItemFacts& facts : facts_) {
    if (facts.value != ir::kNoValue) facts.memory = memory[static_cast<size_t>(facts.value)];
  }
  note_outputs(joint);
  spread();
}

void CutGraph::add_inputs(const ir::Graph& joint) {
  for (ir::ValueId input : joint.inputs()) {
    const ir::Type& type = joint.value(input).type();
    item_of_value_[static_cast<size_t>(input)] = size();
    first_operand_.push_back(0);
    facts_.push_back({.value = input,
                      .bytes = bytes_of(joint, type),
                      .is_tangent = joint.input_role(input).role == ir::Role::Tangent,
                      .is_number = type.tensor == nullptr,
                      .fusible = false});
  }
}

void CutGraph::add_node(const ir::Graph& joint, const ir::Node& node, const CanFuse& can_fuse) {
  ItemFacts facts = facts_of(joint, node, can_fuse);
  fuses_ = fuses_ || (facts.fusible && !facts.is_view);
  first_operand_.push_back(static_cast<int32_t>(operands_.size()));
  for (const ir::Operand& operand : node.operands()) {
    operand.for_each_value([&](ir::ValueId id) {
      if (id != ir::kNoValue) operands_.push_back(of(id));
    });
  }
  const Item item = size();
  const auto describe = [&](ItemFacts& of, ir::ValueId id) {
    const ir::Type& type = joint.value(id).type();
    of.value = id;
    of.bytes = bytes_of(joint, type);
    of.is_number = type.tensor == nullptr;
  };
  if (node.results().size() == 1 && node.results()[0] != ir::kNoValue) {
    describe(facts, node.results()[0]);
    item_of_value_[static_cast<size_t>(facts.value)] = item;
    facts_.push_back(facts);
    return;
  }
  facts_.push_back(facts);
  int64_t bytes = 0;
  for (ir::ValueId id : node.results()) {
    if (id == ir::kNoValue) continue;
    ItemFacts result{.node = node.id(), .is_result = true, .in_backward = facts.in_backward};
    describe(result, id);
    bytes += result.bytes;
    item_of_value_[static_cast<size_t>(id)] = size();
    first_operand_.push_back(static_cast<int32_t>(operands_.size()));
    operands_.push_back(item);
    facts_.push_back(result);
  }
  facts_[index(item)].bytes = bytes;
}

void CutGraph::link() {
  first_user_.assign(facts_.size() + 1, 0);
  for (Item read : operands_) ++first_user_[index(read) + 1];
  for (size_t i = 1; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
  users_.resize(operands_.size());
  std::vector<int32_t> next(first_user_.begin(), first_user_.end() - 1);
  for (Item item = 0; item < size(); ++item) {
    for (Item read : operands(item)) users_[index(next[index(read)]++)] = item;
  }
}

void CutGraph::note_outputs(const ir::Graph& joint) {
  is_gradient_.assign(facts_.size(), false);
  for (const ir::Output& output : joint.outputs()) {
    if (output.value == ir::kNoValue) continue;
    const Item item = of(output.value);
    facts_[index(item)].is_output = true;
    if (output.role.role == ir::Role::Grad) {
      is_gradient_[index(item)] = true;
    } else {
      facts_[index(item)].is_forward_output = true;
    }
  }
}

void CutGraph::spread() {
  only_in_backward_.assign(facts_.size(), false);
  for (Item item = 0; item < size(); ++item) {
    const ItemFacts& facts = facts_[index(item)];
    bool only = facts.is_tangent || (facts.in_backward && !facts.pure);
    for (Item read : operands(item)) only = only || only_in_backward(read);
    only_in_backward_[index(item)] = only;
  }
  needed_by_forward_.assign(facts_.size(), false);
  for (Item item = size(); item-- > 0;) {
    const ItemFacts& facts = facts_[index(item)];
    bool needed = facts.is_forward_output || (!facts.pure && !facts.in_backward);
    for (Item user : users(item)) needed = needed || needed_by_forward(user);
    needed_by_forward_[index(item)] = needed;
  }
}

}  // namespace tandem::partition
