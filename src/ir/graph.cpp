#include "tandem/ir/graph.h"

#include "base/error.h"
#include "ir/tensor_data.h"

#include <algorithm>
#include <utility>

namespace tandem::ir {
namespace {

template <class Fn>
void for_each_mention(std::span<const Operand> operands, Fn&& fn) {
  for (const Operand& operand : operands) operand.for_each_value(fn);
}

int64_t flat_count(const ResultShape& shape) {
  int64_t count = 0;
  for (int64_t length : shape) count += length == kSingle ? 1 : length;
  return count;
}

void replace_values(Operand& operand, ValueId from, ValueId to) {
  if (auto* value = std::get_if<ValueId>(&operand.data)) {
    if (*value == from) *value = to;
  } else if (auto* values = std::get_if<Operand::Values>(&operand.data)) {
    std::replace(values->begin(), values->end(), from, to);
  }
}

}  // namespace

// ---- inputs ----

const Descriptor& Graph::input_role(ValueId input) const {
  const Value& of = value(input);
  TANDEM_CHECK(of.is_input() && of.result_index_ >= 0, "ir", "value ", static_cast<int>(input),
               " is not an input of graph ", name_);
  return input_roles_[static_cast<size_t>(of.result_index_)];
}

Value& Graph::add_input(Type type, Descriptor role, std::string name) {
  Value& input = new_value(std::move(type), std::move(name));
  input.result_index_ = static_cast<int64_t>(inputs_.size());
  inputs_.push_back(input.id_);
  input_roles_.push_back(std::move(role));
  return input;
}

void Graph::set_input_role(ValueId input, Descriptor role) {
  const_cast<Descriptor&>(input_role(input)) = std::move(role);
}

void Graph::erase_input(ValueId input) {
  input_role(input);  // checks that it is one
  Value& erased = value(input);
  TANDEM_CHECK(!erased.has_users(), "ir", "input ", erased.result_index_, " of graph ", name_,
               " is still read");
  auto position = static_cast<size_t>(std::exchange(erased.result_index_, -1));
  inputs_.erase(inputs_.begin() + static_cast<std::ptrdiff_t>(position));
  input_roles_.erase(input_roles_.begin() + static_cast<std::ptrdiff_t>(position));
  for (; position < inputs_.size(); ++position) --value(inputs_[position]).result_index_;
}

void Graph::reorder_inputs(std::vector<ValueId> order) {
  TANDEM_CHECK(order.size() == inputs_.size(), "ir", "new order of ", order.size(),
               " inputs for graph ", name_, " with ", inputs_.size());
  std::vector<Descriptor> roles;
  std::vector<bool> seen(inputs_.size(), false);
  roles.reserve(order.size());
  for (ValueId input : order) {
    roles.push_back(input_role(input));
    auto position = static_cast<size_t>(value(input).result_index_);
    TANDEM_CHECK(!seen[position], "ir", "input ", position, " of graph ", name_,
                 " comes twice in its new order");
    seen[position] = true;
  }
  for (size_t i = 0; i < order.size(); ++i) value(order[i]).result_index_ = static_cast<int64_t>(i);
  inputs_ = std::move(order);
  input_roles_ = std::move(roles);
}

// ---- nodes ----

Node& Graph::add_op(OpSpec spec) {
  ResultShape shape = std::move(spec.shape);
  if (shape.empty()) shape.assign(spec.results.size(), kSingle);
  TANDEM_CHECK(flat_count(shape) == static_cast<int64_t>(spec.results.size()), "ir",
               spec.op.operator_name(), ": ", spec.results.size(), " results for a shape of ",
               flat_count(shape));

  Node& node = new_node(NodeKind::Op, spec.phase);
  node.op_ = spec.op;
  node.operands_ = std::move(spec.operands);
  node.result_shape_ = std::move(shape);
  node.location_ = std::move(spec.location);
  node.results_.reserve(spec.results.size());
  for (size_t i = 0; i < spec.results.size(); ++i) {
    add_result(node, std::move(spec.results[i]),
               i < spec.names.size() ? std::move(spec.names[i]) : std::string());
  }
  add_uses(node);
  return node;
}

Node& Graph::add_constant(at::Tensor tensor, std::string name) {
  Type type = constant_type(tensor);
  Node& node = new_node(NodeKind::Constant, Phase::Forward);
  node.constant_ = std::move(tensor);
  node.result_shape_ = {kSingle};
  add_result(node, std::move(type), std::move(name));
  return node;
}

Node& Graph::add_region(Graph body, std::vector<Operand> operands, std::string label, Phase phase) {
  Node& node = new_node(NodeKind::Region, phase);
  node.label_ = std::move(label);
  node.operands_ = std::move(operands);
  for (const Output& output : body.outputs()) {
    add_result(
        node, output.value == kNoValue ? ResultType() : ResultType(body.value(output.value).type()),
        {});
  }
  node.result_shape_.assign(node.results_.size(), kSingle);
  node.region_ = std::make_shared<const Graph>(std::move(body));
  add_uses(node);
  return node;
}

void Graph::erase(Node& node) {
  TANDEM_CHECK(!node.erased_, "ir", "node ", static_cast<int>(node.id_), " is erased twice");
  for (ValueId result : node.results_) {
    TANDEM_CHECK(result == kNoValue || !value(result).has_users(), "ir", "result ",
                 value(result).result_index_, " of node ", static_cast<int>(node.id_),
                 " is still read");
  }
  remove_uses(node);
  if (insert_before_ == node.id_) insert_before_ = node.next_;
  unlink(node);
  node.erased_ = true;
  // Ids stay, so the node itself stays; what it held can go.
  node.operands_.clear();
  node.constant_.reset();
  node.region_.reset();
}

void Graph::move_before(Node& node, const Node& other) {
  if (node.id_ == other.id_ || node.next_ == other.id_) return;
  // A node moved away must not take the insert point with it.
  if (insert_before_ == node.id_) insert_before_ = node.next_;
  unlink(node);
  link(node, other.id_);
}

void Graph::set_operand(Node& node, size_t index, Operand operand) {
  TANDEM_CHECK(index < node.operands_.size(), "ir", "operand ", index, " of a node with ",
               node.operands_.size());
  remove_uses(node);
  node.operands_[index] = std::move(operand);
  add_uses(node);
}

void Graph::replace_all_uses(ValueId from, ValueId to) {
  if (from == to) return;
  // A copy, since it shrinks underneath; each node once, however often it mentions `from`.
  std::vector<NodeId> readers(value(from).users_.begin(), value(from).users_.end());
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  for (NodeId id : readers) {
    Node& reader = node(id);
    remove_uses(reader);
    for (Operand& operand : reader.operands_) replace_values(operand, from, to);
    add_uses(reader);
  }
  auto positions = value(from).output_positions_;
  for (int32_t position : positions) set_output(static_cast<size_t>(position), to);
}

Node& Graph::new_node(NodeKind kind, Phase phase) {
  Node& node = nodes_.emplace_back();
  node.id_ = static_cast<NodeId>(nodes_.size() - 1);
  node.kind_ = kind;
  node.phase_ = phase;
  link(node, insert_before_);
  return node;
}

Value& Graph::new_value(Type type, std::string name) {
  Value& value = values_.emplace_back();
  value.id_ = static_cast<ValueId>(values_.size() - 1);
  value.type_ = std::move(type);
  value.name_ = std::move(name);
  return value;
}

void Graph::add_result(Node& node, ResultType type, std::string name) {
  if (!type) {
    node.results_.push_back(kNoValue);
    return;
  }
  Value& result = new_value(*std::move(type), std::move(name));
  result.producer_ = node.id_;
  result.result_index_ = static_cast<int64_t>(node.results_.size());
  node.results_.push_back(result.id_);
}

void Graph::link(Node& node, NodeId before) {
  NodeId after = before == kNoNode ? last_ : this->node(before).previous_;
  node.previous_ = after;
  node.next_ = before;
  (after == kNoNode ? first_ : this->node(after).next_) = node.id_;
  (before == kNoNode ? last_ : this->node(before).previous_) = node.id_;
  ++node_count_;
}

void Graph::unlink(Node& node) {
  (node.previous_ == kNoNode ? first_ : this->node(node.previous_).next_) = node.next_;
  (node.next_ == kNoNode ? last_ : this->node(node.next_).previous_) = node.previous_;
  --node_count_;
}

void Graph::add_uses(Node& node) {
  for_each_mention(node.operands_, [&](ValueId id) {
    Value& read = value(id);
    node.use_positions_.push_back(static_cast<int32_t>(read.users_.size()));
    read.mentions_.push_back(static_cast<int32_t>(node.use_positions_.size() - 1));
    read.users_.push_back(node.id_);
  });
}

void Graph::remove_uses(Node& node) {
  size_t mention = 0;
  for_each_mention(node.operands_, [&](ValueId id) {
    Value& read = value(id);
    auto position = static_cast<size_t>(node.use_positions_[mention++]);
    // The last entry takes the free place, and its node is told.
    NodeId moved = read.users_.back();
    int32_t moved_mention = read.mentions_.back();
    read.users_[position] = moved;
    read.mentions_[position] = moved_mention;
    this->node(moved).use_positions_[static_cast<size_t>(moved_mention)] =
        static_cast<int32_t>(position);
    read.users_.pop_back();
    read.mentions_.pop_back();
  });
  node.use_positions_.clear();
}

// ---- outputs ----

void Graph::add_output(ValueId value, Descriptor role) {
  outputs_.push_back({value, std::move(role)});
  add_output_use(outputs_.size() - 1);
}

void Graph::set_output(size_t index, ValueId value) {
  TANDEM_CHECK(index < outputs_.size(), "ir", "output ", index, " of graph ", name_, " with ",
               outputs_.size());
  remove_output_use(index);
  outputs_[index].value = value;
  add_output_use(index);
}

void Graph::set_outputs(std::vector<Output> outputs) {
  for (size_t i = 0; i < outputs_.size(); ++i) remove_output_use(i);
  outputs_ = std::move(outputs);
  for (size_t i = 0; i < outputs_.size(); ++i) add_output_use(i);
}

void Graph::add_output_use(size_t position) {
  ValueId id = outputs_[position].value;
  if (id != kNoValue) value(id).output_positions_.push_back(static_cast<int32_t>(position));
}

void Graph::remove_output_use(size_t position) {
  ValueId id = outputs_[position].value;
  if (id == kNoValue) return;
  auto& positions = value(id).output_positions_;
  auto found = std::find(positions.begin(), positions.end(), static_cast<int32_t>(position));
  *found = positions.back();
  positions.pop_back();
}

// ---- side tables ----

GeneratorRef Graph::add_generator(const at::Generator& generator) {
  auto found = std::find(generators_.begin(), generators_.end(), generator);
  if (found == generators_.end()) {
    generators_.push_back(generator);
    found = generators_.end() - 1;
  }
  return {found - generators_.begin()};
}

void Graph::bind_generator(GeneratorRef ref, at::Generator generator) {
  TANDEM_CHECK(ref.index >= 0, "ir", "generator ", ref.index);
  auto index = static_cast<size_t>(ref.index);
  if (index >= generators_.size()) generators_.resize(index + 1);
  generators_[index] = std::move(generator);
}

}  // namespace tandem::ir
