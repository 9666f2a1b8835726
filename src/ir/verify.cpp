#include "base/error.h"
#include "ir/schema_kind.h"
#include "ir/tensor_data.h"
#include "ir/text/op_names.h"
#include "ir/text/printer.h"
#include "ir/text/words.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace tandem::ir {

/// A look at the use lists from inside.
struct UseLists {
  /// Whether mention `mention` of `node` and the list of `value` point at each other.
  static bool linked(const Node& node, size_t mention, const Value& value) {
    if (mention >= node.use_positions_.size()) return false;
    auto position = static_cast<size_t>(node.use_positions_[mention]);
    return position < value.users_.size() && value.mentions_.size() == value.users_.size() &&
           value.users_[position] == node.id_ &&
           value.mentions_[position] == static_cast<int32_t>(mention);
  }
  static size_t mentions(const Node& node) { return node.use_positions_.size(); }
  static bool output_linked(const Value& value, size_t position) {
    return std::find(value.output_positions_.begin(), value.output_positions_.end(),
                     static_cast<int32_t>(position)) != value.output_positions_.end();
  }
};

namespace {

constexpr const char* kLinks = "nodes form one list";
constexpr const char* kDefinedOnce = "values are defined once";
constexpr const char* kDefinedBefore = "operands are defined before use";
constexpr const char* kUses = "use lists match operands and outputs";
constexpr const char* kOperands = "operands match the schema";
constexpr const char* kResults = "results match the schema";
constexpr const char* kTypes = "values have types";
constexpr const char* kUniqueRoles = "input roles are unique";
constexpr const char* kRolePlaces = "roles fit inputs and outputs";
constexpr const char* kOutputs = "outputs are defined";
constexpr const char* kSymbols = "symbols are declared";
constexpr const char* kRegions = "regions match their operands and results";
constexpr const char* kConstants = "constants match their type";

constexpr size_t kReported = 5;  // by verify()

class Verifier {
 public:
  Verifier(const Graph& graph, std::unordered_set<std::string> outer_symbols)
      : graph_(graph),
        symbols_(std::move(outer_symbols)),
        defined_(graph.value_limit(), false),
        use_counts_(graph.value_limit(), 0) {}

  std::vector<Violation> run() {
    symbols();
    inputs();
    if (nodes_form_a_list()) {
      graph_.for_each_node([&](const Node& node) { this->node(node); });
      outputs();
      use_counts();
    }
    return std::move(found_);
  }

 private:
  // ---- reporting ----

  template <class... Parts>
  void report(const char* rule, NodeId id, const Parts&... parts) {
    std::string text = base::str(rule, ": ", parts...);
    if (id != kNoNode) {
      text += "; node ";
      append_node(text, graph_, graph_.node(id), names());
    }
    found_.push_back({rule, id, std::move(text)});
  }

  const std::vector<std::string>& names() {
    if (!names_) names_ = value_names(graph_);
    return *names_;
  }

  std::string name(ValueId id) {
    auto index = static_cast<size_t>(id);
    if (index < names().size() && !names()[index].empty()) return "%" + names()[index];
    return base::str("%undefined.", static_cast<int>(id));
  }

  // ---- the graph as a whole ----

  void symbols() {
    for (const Symbol& symbol : graph_.symbols()) {
      if (!symbols_.insert(symbol.name).second) {
        report(kSymbols, kNoNode, "symbol ", symbol.name, " is declared twice");
      }
    }
  }

  void inputs() {
    std::unordered_set<std::string> roles;
    for (ValueId input : graph_.inputs()) {
      if (!in_range(input)) {
        report(kDefinedOnce, kNoNode, "input ", static_cast<int>(input),
               " is no value of the graph");
        continue;
      }
      bool consistent = graph_.value(input).is_input() && graph_.value(input).result_index() >= 0;
      define(input, kNoNode, consistent);
      if (!consistent) continue;
      const Descriptor& role = graph_.input_role(input);
      if (!role_word(role.role).of_input) {
        report(kRolePlaces, kNoNode, "input ", name(input), " is ", to_string(role));
      }
      if (!roles.insert(to_string(role)).second) {
        report(kUniqueRoles, kNoNode, "input ", name(input), " is ", to_string(role),
               ", and so is an earlier one");
      }
    }
  }

  bool nodes_form_a_list() {
    size_t count = 0;
    NodeId previous = kNoNode;
    for (NodeId id = graph_.first_node(); id != kNoNode; id = graph_.next(id)) {
      bool fine = static_cast<size_t>(id) < graph_.node_limit() && !graph_.node(id).erased() &&
                  graph_.previous(id) == previous && ++count <= graph_.node_count();
      if (!fine) {
        report(kLinks, kNoNode, "the list is broken after ", count, " nodes");
        return false;
      }
      previous = id;
    }
    if (count == graph_.node_count() && previous == graph_.last_node()) return true;
    report(kLinks, kNoNode, count, " nodes are linked, ", graph_.node_count(), " are counted");
    return false;
  }

  void outputs() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const auto& [id, role] = graph_.outputs()[i];
      if (!role_word(role.role).of_output) {
        report(kRolePlaces, kNoNode, "output ", i, " is ", to_string(role));
      }
      if (id == kNoValue) continue;
      if (!in_range(id) || !defined_[static_cast<size_t>(id)]) {
        report(kOutputs, kNoNode, "output ", i, " (", to_string(role), ") is ", name(id),
               ", which nothing defines");
      } else if (!UseLists::output_linked(graph_.value(id), i)) {
        report(kUses, kNoNode, "output ", i, " is not in the list of ", name(id));
      } else {
        ++output_count_;
      }
    }
  }

  /// Every mention was found in its list; equal sums leave no entry without a mention.
  void use_counts() {
    int64_t listed_outputs = 0;
    for (size_t i = 0; i < graph_.value_limit(); ++i) {
      const Value& value = graph_.value(static_cast<ValueId>(i));
      listed_outputs += value.output_uses();
      if (value.users().size() == use_counts_[i]) continue;
      report(kUses, kNoNode, name(value.id()), " lists ", value.users().size(), " users, ",
             use_counts_[i], " operands mention it");
    }
    if (listed_outputs != output_count_) {
      report(kUses, kNoNode, "values list ", listed_outputs, " outputs, the graph has ",
             output_count_);
    }
  }

  // ---- values ----

  bool in_range(ValueId id) const {
    return static_cast<int64_t>(id) >= 0 && static_cast<size_t>(id) < graph_.value_limit();
  }

  void define(ValueId id, NodeId by, bool consistent) {
    auto index = static_cast<size_t>(id);
    if (defined_[index] || !consistent) {
      report(kDefinedOnce, by, name(id),
             defined_[index] ? " is defined a second time" : " belongs to another place");
      return;
    }
    defined_[index] = true;
    const Type& type = graph_.value(id).type();
    if ((type.kind == TypeKind::Tensor) != (type.tensor != nullptr)) {
      report(kTypes, by, name(id), " has no type");
      return;
    }
    if (!type.tensor) return;
    const TensorType& tensor = *type.tensor;
    if (tensor.layout == c10::Layout::Strided && tensor.strides.size() != tensor.sizes.size()) {
      report(kTypes, by, name(id), " has ", tensor.sizes.size(), " sizes and ",
             tensor.strides.size(), " strides");
    }
    for (const Size& size : tensor.sizes) declared(size, by);
    for (const Size& stride : tensor.strides) declared(stride, by);
  }

  void declared(const Size& size, NodeId by) {
    if (size.is_constant()) return;
    for (const std::string& symbol : size.symbols()) {
      if (!symbols_.contains(symbol)) report(kSymbols, by, "symbol ", symbol, " is not declared");
    }
  }

  // ---- nodes ----

  void node(const Node& node) {
    bool defined = operands_defined(node);
    switch (node.kind()) {
      case NodeKind::Op:
        op(node, defined);
        break;
      case NodeKind::Constant:
        constant(node);
        break;
      case NodeKind::Region:
        region(node, defined);
        break;
    }
    for (size_t i = 0; i < node.results().size(); ++i) {
      ValueId id = node.results()[i];
      if (id == kNoValue) continue;
      if (!in_range(id)) {
        report(kDefinedOnce, node.id(), "result ", i, " is no value of the graph");
        continue;
      }
      const Value& value = graph_.value(id);
      define(id, node.id(),
             value.producer() == node.id() && value.result_index() == static_cast<int64_t>(i));
    }
  }

  bool operands_defined(const Node& node) {
    bool all_defined = true;
    size_t mention = 0;
    for (const Operand& operand : node.operands()) {
      operand.for_each_value([&](ValueId id) {
        size_t current = mention++;
        if (!in_range(id) || !defined_[static_cast<size_t>(id)]) {
          all_defined = false;
          report(kDefinedBefore, node.id(), name(id), " is not defined before its use");
        }
        if (!in_range(id)) return;
        ++use_counts_[static_cast<size_t>(id)];
        if (!UseLists::linked(node, current, graph_.value(id))) {
          report(kUses, node.id(), "operand ", name(id), " is not in its list of users");
        }
      });
      if (auto* size = operand.get_if<Size>()) declared(*size, node.id());
      if (auto* sizes = operand.get_if<Operand::Sizes>()) {
        for (const Size& size : *sizes) declared(size, node.id());
      }
    }
    if (mention != UseLists::mentions(node)) {
      report(kUses, node.id(), mention, " mentions, ", UseLists::mentions(node), " are recorded");
    }
    return all_defined;
  }

  void op(const Node& node, bool operands_are_defined) {
    const c10::FunctionSchema& schema = node.op().schema();
    const auto& arguments = schema.arguments();
    if (node.operands().size() != arguments.size()) {
      report(kOperands, node.id(), op_text(node.op()), " has ", arguments.size(),
             " arguments, got ", node.operands().size());
    } else {
      for (size_t i = 0; i < arguments.size(); ++i) {
        SchemaKind kind = schema_kind(*arguments[i].real_type());
        const Operand& operand = node.operands()[i];
        if (!accepts(kind, operand) || (operands_are_defined && !values_fit(kind.kind, operand))) {
          report(kOperands, node.id(), "argument ", arguments[i].name(), " of ", op_text(node.op()),
                 " is ", describe(kind.kind));
        }
      }
    }
    results(node, schema);
  }

  /// A tensor where a tensor belongs, a number where a number does.
  bool values_fit(ArgumentKind kind, const Operand& operand) const {
    bool fit = true;
    operand.for_each_value(
        [&](ValueId id) { fit = fit && holds(kind, graph_.value(id).type().kind); });
    return fit;
  }

  static bool holds(ArgumentKind kind, TypeKind type) {
    switch (kind) {
      case ArgumentKind::Tensor:
      case ArgumentKind::TensorList:
        return type == TypeKind::Tensor;
      case ArgumentKind::Int:
        return type == TypeKind::Int;
      case ArgumentKind::Float:
        return type == TypeKind::Float;
      case ArgumentKind::Bool:
        return type == TypeKind::Bool;
      case ArgumentKind::Scalar:
        return type != TypeKind::Tensor;
      default:
        return false;
    }
  }

  void results(const Node& node, const c10::FunctionSchema& schema) {
    const auto& returns = schema.returns();
    const ResultShape& shape = node.result_shape();
    int64_t flat = 0;
    for (int64_t length : shape) flat += length == kSingle ? 1 : length;
    if (shape.size() != returns.size() || flat != static_cast<int64_t>(node.results().size())) {
      report(kResults, node.id(), op_text(node.op()), " has ", returns.size(),
             " returns, the shape ", shape.size(), " of ", flat, " results, the node ",
             node.results().size());
      return;
    }
    size_t next = 0;
    for (size_t i = 0; i < returns.size(); ++i) {
      SchemaKind kind = schema_kind(*returns[i].real_type());
      bool list = kind.kind == ArgumentKind::TensorList;
      bool fits = list == (shape[i] != kSingle);
      for (int64_t left = shape[i] == kSingle ? 1 : shape[i]; left > 0; --left) {
        ValueId id = node.results()[next++];
        if (!fits || !in_range(id)) continue;  // absent, or reported where it is defined
        fits = holds(kind.kind, graph_.value(id).type().kind);
      }
      if (!fits) {
        report(kResults, node.id(), "return ", i, " of ", op_text(node.op()), " is ",
               describe(kind.kind));
      }
    }
  }

  void constant(const Node& node) {
    if (!node.constant().defined() || node.results().size() != 1 || !in_range(node.results()[0])) {
      report(kConstants, node.id(), "a constant has a tensor and one result");
      return;
    }
    const Type& type = graph_.value(node.results()[0]).type();
    TensorType held = type_of(node.constant());
    if (type.tensor && *type.tensor == held) return;
    report(kConstants, node.id(), "the tensor is ", to_string(held));
  }

  void region(const Node& node, bool operands_are_defined) {
    const Graph& body = node.region();
    if (node.operands().size() != body.inputs().size() ||
        node.results().size() != body.outputs().size()) {
      report(kRegions, node.id(), "the body has ", body.inputs().size(), " inputs and ",
             body.outputs().size(), " outputs");
    } else {
      for (size_t i = 0; i < body.inputs().size() && operands_are_defined; ++i) {
        const Operand& operand = node.operands()[i];
        auto* id = operand.get_if<ValueId>();
        bool fits = id ? graph_.value(*id).type() == body.value(body.inputs()[i]).type()
                       : operand.is_none();
        if (!fits) {
          report(kRegions, node.id(), "input ", i, " of the body is ",
                 to_string(body.value(body.inputs()[i]).type()));
        }
      }
      for (size_t i = 0; i < body.outputs().size(); ++i) {
        ValueId inside = body.outputs()[i].value;
        ValueId outside = node.results()[i];
        bool absent = inside == kNoValue || outside == kNoValue;
        bool fits =
            absent ? inside == outside : graph_.value(outside).type() == body.value(inside).type();
        if (!fits) report(kRegions, node.id(), "output ", i, " of the body is another");
      }
    }
    for (Violation& inner : Verifier(body, symbols_).run()) {
      inner.node = node.id();
      inner.text = base::str("in region \"", node.label(), "\": ", inner.text);
      found_.push_back(std::move(inner));
    }
  }

  const Graph& graph_;
  std::unordered_set<std::string> symbols_;
  std::vector<bool> defined_;
  std::vector<size_t> use_counts_;
  int64_t output_count_ = 0;
  std::optional<std::vector<std::string>> names_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> violations(const Graph& graph) { return Verifier(graph, {}).run(); }

void verify(const Graph& graph, const std::string& stage) {
  std::vector<Violation> found = violations(graph);
  if (found.empty()) return;
  std::string text = base::str("graph ", graph.name(), " is not well-formed");
  for (size_t i = 0; i < found.size() && i < kReported; ++i) text += "\n  rule:   " + found[i].text;
  if (found.size() > kReported) text += base::str("\n  more:   ", found.size() - kReported);
  throw InternalError(stage,
                      text +
                          "\n  remedy: this is a defect of Tandem; please report it with the "
                          "program that shows it");
}

}  // namespace tandem::ir
