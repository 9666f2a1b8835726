#pragma once

#include "tandem/export.h"
#include "tandem/ir/descriptor.h"
#include "tandem/ir/location.h"
#include "tandem/ir/operand.h"
#include "tandem/ir/type.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::ir {

class Graph;
struct GraphSurgeon;  // of the tests: breaks graphs for the verifier
struct UseLists;

/// Something that flows: an input of the graph or a result of a node.
class TANDEM_API Value {
 public:
  ValueId id() const { return id_; }
  const Type& type() const { return type_; }
  const TypePtr& tensor_type() const { return type_.tensor; }
  /// Empty: the printer picks a number.
  const std::string& name() const { return name_; }
  bool is_input() const { return producer_ == kNoNode; }
  /// kNoNode for an input.
  NodeId producer() const { return producer_; }
  /// Which result of its producer, counting the elements of lists one by one; of an input: which
  /// input.
  int64_t result_index() const { return result_index_; }
  /// Nodes that read it, once per mention, in no particular order.
  std::span<const NodeId> users() const { return users_; }
  int64_t output_uses() const { return static_cast<int64_t>(output_positions_.size()); }
  bool has_users() const { return !users_.empty() || !output_positions_.empty(); }

 private:
  friend class Graph;
  friend struct GraphSurgeon;
  friend struct UseLists;  // verify.cpp
  ValueId id_ = kNoValue;
  Type type_;
  std::string name_;
  NodeId producer_ = kNoNode;
  int64_t result_index_ = 0;  // of an input: its position; -1 once it is erased
  c10::SmallVector<NodeId, 2> users_;
  c10::SmallVector<int32_t, 2> mentions_;  // beside users_: which mention of that node it is
  c10::SmallVector<int32_t, 1> output_positions_;
};

enum class NodeKind : uint8_t {
  Op,        // a call of a libtorch operator
  Constant,  // a tensor known at compile time
  Region,    // a graph inside the graph; captures make none yet
};

/// Which half of a training step a node was recorded in. Data flow does not tell: the backward also
/// computes things that depend on no tangent.
enum class Phase : uint8_t { Forward, Backward };

/// How the flat results of a node make up the returns of its schema: per return kSingle, or a
/// list's length.
using ResultShape = c10::SmallVector<int64_t, 1>;
inline constexpr int64_t kSingle = -1;

/// Something that computes.
class TANDEM_API Node {
 public:
  NodeId id() const { return id_; }
  NodeKind kind() const { return kind_; }
  Phase phase() const { return phase_; }
  /// Of an Op only.
  const c10::OperatorHandle& op() const { return *op_; }
  /// Of a Constant only.
  const at::Tensor& constant() const { return constant_; }
  /// Of a Region only: its inputs take the operands, its outputs are the results. The label says
  /// what for.
  const Graph& region() const { return *region_; }
  const std::string& label() const { return label_; }
  /// One per argument of the schema, defaults included.
  std::span<const Operand> operands() const { return operands_; }
  /// Flat; kNoValue for an undefined tensor.
  std::span<const ValueId> results() const { return results_; }
  const ResultShape& result_shape() const { return result_shape_; }
  const Location& location() const { return location_; }
  bool erased() const { return erased_; }

 private:
  friend class Graph;
  friend struct GraphSurgeon;
  friend struct UseLists;
  NodeId id_ = kNoNode;
  NodeKind kind_ = NodeKind::Op;
  Phase phase_ = Phase::Forward;
  bool erased_ = false;
  std::optional<c10::OperatorHandle> op_;
  at::Tensor constant_;
  std::shared_ptr<const Graph> region_;
  std::string label_;
  std::vector<Operand> operands_;
  c10::SmallVector<ValueId, 2> results_;  // as small as a vector, without its allocation
  ResultShape result_shape_;
  Location location_;
  // Per mention of a value, in operand order: its place in that value's users_. With
  // Value::mentions_ it makes removing a use cost the same for a value with one reader and with a
  // hundred thousand.
  c10::SmallVector<int32_t, 4> use_positions_;
  NodeId previous_ = kNoNode, next_ = kNoNode;
};

/// One result of a node about to be added: absent for an undefined tensor.
using ResultType = std::optional<Type>;

/// Everything about an Op node about to be added.
struct OpSpec {
  c10::OperatorHandle op;
  std::vector<Operand> operands{};
  std::vector<ResultType> results{};  // flat
  ResultShape shape{};                // empty: every return is a single tensor
  Phase phase = Phase::Forward;
  Location location{};
  std::vector<std::string> names{};  // of the results; may be shorter
};

/// An output of a graph: which value, and what it is to the caller. kNoValue prints as `none`.
struct Output {
  ValueId value = kNoValue;
  Descriptor role;
};

/// A symbolic size that the types of the graph may mention.
struct Symbol {
  std::string name;
  int64_t min = 0;
  std::optional<int64_t> max{};
  std::optional<int64_t> hint{};
  friend bool operator==(const Symbol&, const Symbol&) = default;
};

/// A list of nodes in topological order, with typed inputs and outputs.
///
/// A value type: copying copies the graph, and ids mean the same in the copy. References to nodes
/// and values stay valid until the graph is destroyed or assigned to; an erased node keeps its id.
class TANDEM_API Graph {
 public:
  Graph() = default;
  explicit Graph(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // ---- inputs ----
  std::span<const ValueId> inputs() const { return inputs_; }
  const Descriptor& input_role(ValueId input) const;
  Value& add_input(Type type, Descriptor role, std::string name = {});
  void set_input_role(ValueId input, Descriptor role);
  /// Nobody may read it.
  void erase_input(ValueId input);
  /// `order` holds every input once.
  void reorder_inputs(std::vector<ValueId> order);

  // ---- nodes, in topological order ----
  Node& add_op(OpSpec spec);
  Node& add_constant(at::Tensor tensor, std::string name = {});
  Node& add_region(Graph body, std::vector<Operand> operands, std::string label, Phase phase);
  /// New nodes go before `node` from now on; kNoNode: at the end.
  void set_insert_point(NodeId node) { insert_before_ = node; }
  /// Nobody may read its results.
  void erase(Node& node);
  void move_before(Node& node, const Node& other);
  void set_phase(Node& node, Phase phase) { node.phase_ = phase; }
  void set_location(Node& node, Location location) { node.location_ = std::move(location); }
  void set_operand(Node& node, size_t index, Operand operand);
  /// Every node and output that reads `from` reads `to` instead.
  void replace_all_uses(ValueId from, ValueId to);

  size_t node_count() const { return node_count_; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  void set_name(ValueId id, std::string name) { value(id).name_ = std::move(name); }
  void set_type(ValueId id, Type type) { value(id).type_ = std::move(type); }
  /// Ids are smaller than these; erased nodes and values count. For side tables indexed by id.
  size_t node_limit() const { return nodes_.size(); }
  size_t value_limit() const { return values_.size(); }

  NodeId first_node() const { return first_; }
  NodeId last_node() const { return last_; }
  NodeId next(NodeId id) const { return node(id).next_; }
  NodeId previous(NodeId id) const { return node(id).previous_; }

  /// `fn` may erase the node it is given, and add nodes before it.
  template <class Fn>
  void for_each_node(Fn&& fn) {
    for (NodeId id = first_; id != kNoNode;) {
      NodeId following = node(id).next_;
      fn(node(id));
      id = following;
    }
  }
  template <class Fn>
  void for_each_node(Fn&& fn) const {
    for (NodeId id = first_; id != kNoNode; id = node(id).next_) fn(node(id));
  }
  template <class Fn>
  void for_each_node_reversed(Fn&& fn) {
    for (NodeId id = last_; id != kNoNode;) {
      NodeId following = node(id).previous_;
      fn(node(id));
      id = following;
    }
  }

  // ---- outputs ----
  std::span<const Output> outputs() const { return outputs_; }
  void add_output(ValueId value, Descriptor role);
  void set_output(size_t index, ValueId value);
  void set_outputs(std::vector<Output> outputs);

  // ---- side tables ----
  const std::vector<at::Generator>& generators() const { return generators_; }
  /// The same generator gets the same index.
  GeneratorRef add_generator(const at::Generator& generator);
  /// A graph that was parsed has undefined generators until they are bound. The table grows as
  /// needed.
  void bind_generator(GeneratorRef ref, at::Generator generator);
  const std::vector<Symbol>& symbols() const { return symbols_; }
  void add_symbol(Symbol symbol) { symbols_.push_back(std::move(symbol)); }

 private:
  friend struct GraphSurgeon;
  friend struct UseLists;
  Node& new_node(NodeKind kind, Phase phase);
  Value& new_value(Type type, std::string name);
  void add_result(Node& node, ResultType type, std::string name);
  void link(Node& node, NodeId before);
  void unlink(Node& node);
  void add_uses(Node& node);
  void remove_uses(Node& node);
  void add_output_use(size_t position);
  void remove_output_use(size_t position);

  std::string name_;
  std::vector<ValueId> inputs_;
  std::vector<Descriptor> input_roles_;  // by position in inputs_
  std::deque<Node> nodes_;               // by id; a deque keeps references valid
  std::deque<Value> values_;             // by id
  std::vector<Output> outputs_;
  std::vector<at::Generator> generators_;
  std::vector<Symbol> symbols_;
  NodeId first_ = kNoNode, last_ = kNoNode, insert_before_ = kNoNode;
  size_t node_count_ = 0;
};

/// A broken rule of a well-formed graph, and where.
struct Violation {
  std::string rule;  // `operands are defined before use`, ...
  NodeId node = kNoNode;
  std::string text;  // one line that names node, value and rule
};

/// Every broken rule; empty for a well-formed graph. Linear in the size of the graph.
TANDEM_API std::vector<Violation> violations(const Graph& graph);
/// Throws an InternalError with the first violations if there are any. `stage` starts its text.
TANDEM_API void verify(const Graph& graph, const std::string& stage = "verify");

/// Equal for graphs that differ only in ids, in names (of values, of the graph) and in locations.
/// The same in every process: no address goes into it.
TANDEM_API uint64_t structural_hash(const Graph& graph);
/// The same without sizes, strides, integers, floating-point numbers and data of constants: equal
/// for recordings of the same ops at different sizes.
TANDEM_API uint64_t shape_free_hash(const Graph& graph);

}  // namespace tandem::ir
