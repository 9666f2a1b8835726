#include "base/error.h"
#include "ir/ivalue.h"
#include "ir/schema_kind.h"
#include "ir/tensor_data.h"
#include "ir/text/cursor.h"
#include "ir/text/op_names.h"
#include "ir/text/parser.h"
#include "ir/text/words.h"
#include "tandem/ir/text.h"

#include <charconv>
#include <optional>
#include <unordered_map>

namespace tandem::ir {
namespace {

/// Regions nest by recursion.
constexpr int kMaxDepth = 100;

/// An operator with what the parser asks about it once per call.
struct KnownOp {
  c10::OperatorHandle op;
  std::vector<SchemaKind> arguments{};
};

/// What all graphs of one text share.
struct Shared {
  std::unordered_map<std::string_view, KnownOp> ops{};
  std::unordered_map<std::string_view, TypePtr> types{};  // by their text
  ConstantSource* source = nullptr;
};

/// A result as the left side of a node has it.
struct Result {
  std::string_view name{};
  ResultType type{};  // absent: none
  size_t position = 0;
};

struct Results {
  std::vector<Result> flat{};
  ResultShape shape{};
};

bool starts_float(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with("inf") || text.starts_with("nan")) {
    return text.size() == 3 || text[3] == '(' || !is_name_char(text[3]);
  }
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  return digits > 0 && digits < text.size() && (text[digits] == '.' || text[digits] == 'e');
}

class GraphParser {
 public:
  GraphParser(Cursor& cursor, Shared& shared, int depth)
      : cursor_(cursor), shared_(shared), depth_(depth) {}

  Graph parse() {
    cursor_.skip_blank();
    size_t start = cursor_.position();
    cursor_.expect_word("graph");
    if (depth_ > kMaxDepth)
      cursor_.fail_at(start, base::str("more than ", kMaxDepth, " nested regions"));
    head();
    cursor_.expect('{');
    while (!cursor_.take_word("return")) line();
    outputs();
    cursor_.expect('}');
    // A region is checked as part of the graph around it, whose symbols it may use.
    if (depth_ == 0) check(start);
    return std::move(graph_);
  }

  TensorType tensor_type() {
    TensorType type;
    while (true) {
      std::string_view word = cursor_.peek_word();
      size_t start = cursor_.position();
      cursor_.set_position(start + word.size());
      if (cursor_.here() == '[') {
        auto dtype = find_dtype(word);
        if (!dtype) {
          cursor_.set_position(start);
          cursor_.fail_expected(base::str("a dtype (", dtype_words(), ")"));
        }
        type.dtype = *dtype;
        break;
      }
      if (auto layout = find_layout(word)) {
        type.layout = *layout;
        continue;
      }
      cursor_.set_position(start);
      if (word.empty()) cursor_.fail_expected("a type");
      type.device = device("a type");
    }
    cursor_.expect('[');
    for_each_until(']', [&] { type.sizes.push_back(cursor_.expect_size()); });
    size_t end = cursor_.position();
    cursor_.skip_spaces();
    if (cursor_.here() == '(') {
      size_t start = cursor_.position();
      cursor_.expect('(');
      for_each_until(')', [&] { type.strides.push_back(cursor_.expect_size()); });
      if (type.strides.size() != type.sizes.size()) {
        cursor_.fail_at(start, base::str("expected ", type.sizes.size(), " strides, got ",
                                         type.strides.size()));
      }
      return type;
    }
    cursor_.set_position(end);  // spaces are no part of the type
    if (type.layout == c10::Layout::Strided) type.strides = contiguous_strides(type.sizes);
    return type;
  }

 private:
  void check(size_t start) {
    auto found = violations(graph_);
    if (found.empty()) return;
    cursor_.fail_at(
        start, base::str("graph ", graph_.name(), " is not well-formed: ", found.front().text));
  }

  // ---- head and outputs ----

  void head() {
    if (cursor_.peek() == '"') {
      graph_.set_name(cursor_.expect_string());
    } else {
      std::string_view name = cursor_.peek_word();
      cursor_.set_position(cursor_.position() + name.size());
      graph_.set_name(std::string(name));
    }
    if (cursor_.take('[')) {
      for_each_until(']', [&] { symbol(); });
    }
    cursor_.expect('(');
    for_each_until(')', [&] {
      Result input = definition();
      Descriptor role = descriptor(/*of_input=*/true);
      define(
          input,
          graph_.add_input(*std::move(input.type), std::move(role), std::string(input.name)).id());
    });
  }

  void symbol() {
    Symbol symbol;
    symbol.name = cursor_.expect_name("the name of a symbol");
    cursor_.expect(':');
    symbol.min = cursor_.expect_integer();
    cursor_.expect('.');
    cursor_.expect('.');
    char next = cursor_.peek();
    if (next == '-' || (next >= '0' && next <= '9')) symbol.max = cursor_.expect_integer();
    if (cursor_.take_word("hint")) symbol.hint = cursor_.expect_integer();
    graph_.add_symbol(std::move(symbol));
  }

  Descriptor descriptor(bool of_input) {
    const RoleWord* word = find_role(cursor_.peek_word());
    if (!word || !(of_input ? word->of_input : word->of_output))
      cursor_.fail_expected(of_input ? "the role of an input" : "the role of an output");
    return parse_descriptor(cursor_);
  }

  void outputs() {
    if (cursor_.peek() == '}') return;
    do {
      ValueId value = value_or_none("a value or none");
      cursor_.expect(':');
      graph_.add_output(value, descriptor(/*of_input=*/false));
    } while (cursor_.take(','));
  }

  // ---- nodes ----

  void line() {
    std::string_view word = cursor_.peek_word();
    if (word == "forward" || word == "backward") {
      cursor_.expect_word(word);
      cursor_.expect(':');
      phase_ = word == "forward" ? Phase::Forward : Phase::Backward;
      return;
    }
    size_t start = cursor_.position();
    Results left;
    char next = cursor_.here();
    if (next == '%' || next == '[' || word == "none") left = results();
    word = cursor_.peek_word();
    if (word.empty()) cursor_.fail_expected("an operator, constant, region or return");
    NodeId id = word == "constant" ? constant(start, left)
                : word == "region" ? region(start, left)
                                   : op(start, left);
    Node& node = graph_.node(id);
    graph_.set_phase(node, phase_);
    for (size_t i = 0; i < left.flat.size(); ++i) {
      if (left.flat[i].type) define(left.flat[i], node.results()[i]);
    }
    graph_.set_location(node, location());
  }

  Results results() {
    Results left;
    do {
      if (!cursor_.take('[')) {
        left.flat.push_back(definition_or_none());
        left.shape.push_back(kSingle);
        continue;
      }
      size_t before = left.flat.size();
      for_each_until(']', [&] { left.flat.push_back(definition_or_none()); });
      left.shape.push_back(static_cast<int64_t>(left.flat.size() - before));
    } while (cursor_.take(','));
    cursor_.expect('=');
    return left;
  }

  Result definition_or_none() {
    cursor_.skip_blank();
    size_t position = cursor_.position();
    if (cursor_.take_word("none")) return {.position = position};
    return definition();
  }

  Result definition() {
    cursor_.skip_blank();
    Result result;
    result.position = cursor_.position();
    result.name = cursor_.expect_value_name();
    cursor_.expect(':');
    result.type = type();
    return result;
  }

  void define(const Result& result, ValueId id) {
    if (!values_.emplace(result.name, id).second) {
      cursor_.fail_at(result.position, base::str("value %", result.name, " is defined twice"));
    }
    if (result.name.empty()) return;
    if (graph_.value(id).name() != result.name) graph_.set_name(id, std::string(result.name));
  }

  NodeId op(size_t start, const Results& left) {
    cursor_.skip_blank();
    size_t position = cursor_.position();
    std::string_view name = cursor_.expect_name("an operator");
    const KnownOp& known = known_op(name, position);
    OpSpec spec{.op = known.op};
    spec.operands = operands(name, known);
    for (const Result& result : left.flat) {
      spec.results.push_back(result.type);
      spec.names.emplace_back(result.name);
    }
    check_returns(start, name, known.op.schema(), left.shape);
    spec.shape = left.shape;
    return graph_.add_op(std::move(spec)).id();
  }

  const KnownOp& known_op(std::string_view name, size_t position) {
    auto found = shared_.ops.find(name);
    if (found != shared_.ops.end()) return found->second;
    auto op = find_op(name);
    if (!op) {
      std::string near = near_ops(name);
      cursor_.fail_at(position,
                      base::str("unknown operator ", name, near.empty() ? "" : ", did you mean ",
                                near, near.empty() ? "" : "?"));
    }
    KnownOp known{*op};
    for (const c10::Argument& argument : op->schema().arguments()) {
      known.arguments.push_back(schema_kind(*argument.real_type()));
    }
    return shared_.ops.emplace(name, std::move(known)).first->second;
  }

  void check_returns(size_t start, std::string_view name, const c10::FunctionSchema& schema,
                     const ResultShape& shape) {
    const auto& returns = schema.returns();
    if (shape.size() != returns.size()) {
      cursor_.fail_at(start,
                      base::str(name, " has ", returns.size(), " results, got ", shape.size()));
    }
    for (size_t i = 0; i < returns.size(); ++i) {
      bool list = returns[i].real_type()->kind() == c10::TypeKind::ListType;
      if (list == (shape[i] == kSingle)) {
        cursor_.fail_at(start, base::str("result ", i, " of ", name, " is ",
                                         list ? "a list: write it in brackets" : "not a list"));
      }
    }
  }

  std::vector<Operand> operands(std::string_view name, const KnownOp& known) {
    const auto& arguments = known.op.schema().arguments();
    std::vector<Operand> result(arguments.size());
    std::vector<bool> given(arguments.size(), false);
    size_t next = 0;
    cursor_.expect('(');
    for_each_until(')', [&] {
      size_t start = cursor_.position();
      std::optional<size_t> named = keyword(name, arguments);
      size_t index = named ? *named : next++;
      if (index >= arguments.size()) {
        cursor_.fail_at(start, base::str(name, " has ", arguments.size(), " arguments, got more"));
      }
      if (!named && arguments[index].kwarg_only()) {
        cursor_.fail_at(start,
                        base::str("argument ", arguments[index].name(), " of ", name,
                                  " is written with its name: ", arguments[index].name(), "=..."));
      }
      if (given[index]) {
        cursor_.fail_at(
            start, base::str("argument ", arguments[index].name(), " of ", name, " comes twice"));
      }
      given[index] = true;
      result[index] = operand(known.arguments[index], arguments[index]);
    });
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (given[i]) continue;
      if (!arguments[i].default_value()) {
        cursor_.fail_at(cursor_.position() - 1,
                        base::str("argument ", arguments[i].name(), " of ", name, " is missing"));
      }
      result[i] = to_operand(graph_, *arguments[i].default_value(), arguments[i].real_type(),
                             [](const at::Tensor&) { return kNoValue; });
    }
    return result;
  }

  /// `name=` before an operand: which argument it names.
  std::optional<size_t> keyword(std::string_view op, const std::vector<c10::Argument>& arguments) {
    std::string_view word = cursor_.peek_word();
    size_t start = cursor_.position();
    if (word.empty()) return std::nullopt;
    cursor_.set_position(start + word.size());
    if (!cursor_.take('=')) {
      cursor_.set_position(start);
      return std::nullopt;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == word) return i;
    }
    cursor_.fail_at(start, base::str(op, " has no argument ", word));
  }

  NodeId constant(size_t start, const Results& left) {
    cursor_.expect_word("constant");
    if (left.shape != ResultShape{kSingle} || !left.flat[0].type ||
        left.flat[0].type->kind != TypeKind::Tensor || !left.flat[0].type->tensor->is_static()) {
      cursor_.fail_at(start, "a constant has one result, a tensor of known size");
    }
    const TensorType& type = *left.flat[0].type->tensor;
    bool wrapped = cursor_.take_word("wrapped");
    cursor_.skip_blank();
    size_t position = cursor_.position();
    std::vector<std::byte> bytes = cursor_.take('@') ? stored_elements() : inline_elements(type);
    if (bytes.size() != static_cast<size_t>(type.bytes())) {
      cursor_.fail_at(position, base::str("expected ", type.numel(), " elements of dtype ",
                                          dtype_name(type.dtype), ", got ",
                                          bytes.size() / c10::elementSize(type.dtype)));
    }
    at::Tensor tensor = constant_from_bytes(type, bytes);
    if (wrapped) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return graph_.add_constant(std::move(tensor), std::string(left.flat[0].name)).id();
  }

  std::vector<std::byte> inline_elements(const TensorType& type) {
    size_t item_bytes = c10::elementSize(type.dtype);
    std::vector<std::byte> bytes;
    bytes.reserve(static_cast<size_t>(type.bytes()));
    cursor_.expect('{');
    for_each_until('}', [&] {
      bytes.resize(bytes.size() + item_bytes);
      std::string_view rest = cursor_.rest();
      size_t before = rest.size();
      if (!read_element(rest, type.dtype, bytes.data() + bytes.size() - item_bytes)) {
        cursor_.fail_expected(base::str("an element of dtype ", dtype_name(type.dtype)));
      }
      cursor_.set_position(cursor_.position() + before - rest.size());
    });
    return bytes;
  }

  std::vector<std::byte> stored_elements() {
    size_t start = cursor_.position() - 1;
    int64_t index = cursor_.expect_integer();
    cursor_.expect(':');
    std::string_view word = cursor_.expect_name("a checksum");
    uint64_t checksum = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), checksum, 16);
    if (error != std::errc() || end != word.data() + word.size()) {
      cursor_.fail_at(start, base::str("expected a checksum in hex digits, got '", word, "'"));
    }
    if (!shared_.source) {
      cursor_.fail_at(start,
                      base::str("constant @", index,
                                " is in a side file\n  remedy: read the file with ir::read_file"));
    }
    std::vector<std::byte> bytes;
    std::string problem = shared_.source->load(index, checksum, bytes);
    if (!problem.empty()) cursor_.fail_at(start, problem);
    return bytes;
  }

  NodeId region(size_t start, const Results& left) {
    cursor_.expect_word("region");
    std::string label = cursor_.expect_string();
    std::vector<Operand> operands;
    cursor_.expect('(');
    for_each_until(')', [&] {
      ValueId id = value_or_none("a value or none");
      operands.push_back(id == kNoValue ? Operand() : Operand(id));
    });
    Graph body = GraphParser(cursor_, shared_, depth_ + 1).parse();
    if (left.flat.size() != body.outputs().size() || left.shape.size() != left.flat.size()) {
      cursor_.fail_at(start, base::str("region \"", label, "\" has ", body.outputs().size(),
                                       " results, got ", left.flat.size()));
    }
    for (size_t i = 0; i < left.flat.size(); ++i) {
      ValueId id = body.outputs()[i].value;
      ResultType type = id == kNoValue ? ResultType() : ResultType(body.value(id).type());
      if (type == left.flat[i].type) continue;
      cursor_.fail_at(left.flat[i].position,
                      base::str("result ", i, " of region \"", label, "\" is ",
                                type ? to_string(*type) : "none", ", got ",
                                left.flat[i].type ? to_string(*left.flat[i].type) : "none"));
    }
    return graph_.add_region(std::move(body), std::move(operands), std::move(label), phase_).id();
  }

  /// What follows a node on its line: `# net.cpp:41`, or a symbol. Any other comment is just one.
  Location location() {
    cursor_.skip_spaces();
    if (cursor_.here() != '#') return {};
    std::string_view comment = cursor_.rest().substr(1);
    comment = comment.substr(0, comment.find('\n'));
    cursor_.set_position(cursor_.position() + 1 + comment.size());
    while (comment.starts_with(' ')) comment.remove_prefix(1);
    while (comment.ends_with(' ') || comment.ends_with('\r')) comment.remove_suffix(1);
    if (is_symbol(comment)) return {std::string(comment), 0};
    size_t colon = comment.rfind(':');
    if (colon == std::string_view::npos) return {};
    int64_t line = 0;
    std::string_view digits = comment.substr(colon + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), line);
    if (error != std::errc() || end != digits.data() + digits.size() || line <= 0) return {};
    return {std::string(comment.substr(0, colon)), line};
  }

  /// `libnet.so(forward+0x1a)`: what a location is without debug information.
  static bool is_symbol(std::string_view comment) {
    size_t offset = comment.rfind("+0x");
    if (!comment.ends_with(')') || offset == std::string_view::npos) return false;
    if (comment.substr(0, offset).find('(') == std::string_view::npos) return false;
    std::string_view digits = comment.substr(offset + 3, comment.size() - offset - 4);
    return !digits.empty() &&
           digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  }

  // ---- types ----

  Type type() {
    cursor_.skip_blank();
    std::string_view word = cursor_.peek_word();
    char after = cursor_.rest().size() > word.size() ? cursor_.rest()[word.size()] : '\0';
    if (after != '[') {
      for (auto [name, kind] :
           {std::pair{"int", TypeKind::Int}, std::pair{"float", TypeKind::Float},
            std::pair{"bool", TypeKind::Bool}}) {
        if (cursor_.take_word(name)) return Type::of(kind);
      }
    }
    std::string_view text = type_extent();
    auto found = shared_.types.find(text);
    if (found == shared_.types.end()) {
      size_t start = cursor_.position();
      auto parsed = std::make_shared<const TensorType>(tensor_type());
      if (cursor_.slice(start) != text) return TypePtr(std::move(parsed));
      return shared_.types.emplace(text, std::move(parsed)).first->second;
    }
    cursor_.set_position(cursor_.position() + text.size());
    return found->second;
  }

  /// How far a tensor type reaches, without understanding it: to its `]`, and strides if any
  /// follow.
  std::string_view type_extent() {
    std::string_view rest = cursor_.rest();
    size_t end = rest.find_first_of("]\n");
    if (end == std::string_view::npos) return {};
    size_t strides = rest.find_first_not_of(' ', end + 1);
    if (strides == std::string_view::npos || rest[strides] != '(') return rest.substr(0, end + 1);
    int depth = 0;
    for (size_t i = strides; i < rest.size() && rest[i] != '\n'; ++i) {
      depth += rest[i] == '(';
      depth -= rest[i] == ')';
      if (depth == 0) return rest.substr(0, i + 1);
    }
    return {};
  }

  /// `cpu`, `cuda:0`.
  c10::Device device(std::string_view expected) {
    std::string_view word = cursor_.peek_word();
    size_t start = cursor_.position();
    cursor_.set_position(start + word.size());
    if (cursor_.here() == ':') {
      cursor_.set_position(cursor_.position() + 1);
      std::string_view index = cursor_.peek_word();
      cursor_.set_position(cursor_.position() + index.size());
    }
    auto found = word.empty() ? std::nullopt : find_device(cursor_.slice(start));
    if (!found) {
      cursor_.set_position(start);
      cursor_.fail_expected(expected);
    }
    return *found;
  }

  // ---- operands ----

  ValueId value() {
    cursor_.skip_blank();
    size_t start = cursor_.position();
    std::string_view name = cursor_.expect_value_name();
    auto found = values_.find(name);
    if (found == values_.end()) {
      cursor_.fail_at(start, base::str("value %", name, " is not defined before its use"));
    }
    return found->second;
  }

  ValueId value_or_none(std::string_view expected) {
    if (cursor_.peek() == '%') return value();
    if (!cursor_.take_word("none")) cursor_.fail_expected(expected);
    return kNoValue;
  }

  /// A number may stand where a tensor does: libtorch's wrapped numbers.
  bool at_number() {
    char next = cursor_.peek();
    if ((next >= '0' && next <= '9') || next == '-' || next == '(') return true;
    std::string_view word = cursor_.peek_word();
    return word == "true" || word == "false" || word == "inf" || word == "nan";
  }

  Operand operand(SchemaKind kind, const c10::Argument& argument) {
    if (cursor_.peek() == '%') return value();
    if (cursor_.take_word("none")) return {};
    switch (kind.kind) {
      case ArgumentKind::Tensor:
        if (at_number()) return scalar();
        break;
      case ArgumentKind::TensorList:
        return list<ValueId>(kind, [&] { return value_or_none("a value or none"); });
      case ArgumentKind::Int:
        return cursor_.expect_size();
      case ArgumentKind::IntList:
        return list<Size>(kind, [&] { return cursor_.expect_size(); });
      case ArgumentKind::Float:
        return cursor_.expect_float();
      case ArgumentKind::FloatList:
        return list<double>(kind, [&] { return cursor_.expect_float(); });
      case ArgumentKind::Bool:
        return flag();
      case ArgumentKind::BoolList:
        return list<bool>(kind, [&] { return flag(); });
      case ArgumentKind::Scalar:
        return scalar();
      case ArgumentKind::ScalarList:
        return scalar_list(kind);
      case ArgumentKind::String:
        return cursor_.expect_string();
      case ArgumentKind::Dtype:
        return word(kind, find_dtype);
      case ArgumentKind::Layout:
        return word(kind, find_layout);
      case ArgumentKind::MemoryFormat:
        return word(kind, find_memory_format);
      case ArgumentKind::Device:
        return device(describe(kind.kind));
      case ArgumentKind::Generator:
        return generator();
      case ArgumentKind::Other:
        cursor_.fail_at(cursor_.position(), base::str("argument ", argument.name(), " of type ",
                                                      argument.real_type()->str(), " has no text"));
    }
    cursor_.fail_expected(base::str(describe(kind.kind), " for argument ", argument.name()));
  }

  template <class T, class Fn>
  Operand list(SchemaKind kind, Fn&& element) {
    std::vector<T> elements;
    if (!cursor_.take('[')) cursor_.fail_expected(describe(kind.kind));
    for_each_until(']', [&] { elements.push_back(element()); });
    return elements;
  }

  template <class Find>
  Operand word(SchemaKind kind, Find&& find) {
    std::string_view text = cursor_.peek_word();
    auto found = find(text);
    if (!found) cursor_.fail_expected(describe(kind.kind));
    cursor_.set_position(cursor_.position() + text.size());
    return *found;
  }

  bool flag() {
    if (cursor_.take_word("true")) return true;
    if (!cursor_.take_word("false")) cursor_.fail_expected("true or false");
    return false;
  }

  Operand scalar() {
    std::string_view word = cursor_.peek_word();
    if (word == "true" || word == "false") return flag();
    if (cursor_.take('(')) {
      double real_part = cursor_.expect_float();
      cursor_.expect(',');
      std::complex<double> number(real_part, cursor_.expect_float());
      cursor_.expect(')');
      return number;
    }
    if (starts_float(cursor_.rest())) return cursor_.expect_float();
    return cursor_.expect_size();
  }

  Operand scalar_list(SchemaKind kind) {
    std::vector<Operand> elements;
    if (!cursor_.take('[')) cursor_.fail_expected(describe(kind.kind));
    size_t start = cursor_.position() - 1;
    for_each_until(']', [&] { elements.push_back(scalar()); });
    if (elements.empty()) return Operand::Sizes();
    auto gather = [&]<class T>(std::vector<T> gathered) -> Operand {
      for (const Operand& element : elements) {
        auto* number = element.get_if<T>();
        if (!number) cursor_.fail_at(start, "a list of numbers has numbers of one kind");
        gathered.push_back(*number);
      }
      return gathered;
    };
    if (elements[0].get_if<Size>()) return gather(Operand::Sizes());
    if (elements[0].get_if<double>()) return gather(std::vector<double>());
    return gather(std::vector<bool>());
  }

  Operand generator() {
    if (!cursor_.take_word("generator")) cursor_.fail_expected("a generator");
    cursor_.skip_blank();
    size_t start = cursor_.position();
    GeneratorRef ref{cursor_.expect_integer()};
    constexpr int64_t kMaxGenerators = 10000;
    if (ref.index < 0 || ref.index >= kMaxGenerators) {
      cursor_.fail_at(start, base::str("generator ", ref.index, " is out of range"));
    }
    if (static_cast<size_t>(ref.index) >= graph_.generators().size())
      graph_.bind_generator(ref, {});
    return ref;
  }

  /// Elements between commas up to `close`, which is taken.
  template <class Fn>
  void for_each_until(char close, Fn&& fn) {
    if (cursor_.take(close)) return;
    do {
      cursor_.skip_blank();
      fn();
    } while (cursor_.take(','));
    if (!cursor_.take(close)) cursor_.fail_expected(base::str("',' or '", close, "'"));
  }

  Cursor& cursor_;
  Shared& shared_;
  int depth_;
  Graph graph_;
  Phase phase_ = Phase::Forward;
  std::unordered_map<std::string_view, ValueId> values_;
};

}  // namespace

Graph parse_graph(Cursor& cursor, ConstantSource* source) {
  Shared shared{.source = source};
  return GraphParser(cursor, shared, 0).parse();
}

TensorType parse_tensor_type(Cursor& cursor) {
  Shared shared;
  return GraphParser(cursor, shared, 0).tensor_type();
}

Descriptor parse_descriptor(Cursor& cursor) {
  const RoleWord* word = find_role(cursor.peek_word());
  if (!word) cursor.fail_expected("a role");
  cursor.expect_word(word->word);
  Descriptor result{word->role};
  const char next = cursor.peek();
  const bool has_number = next == '-' || (next >= '0' && next <= '9');
  switch (word->detail) {
    case RoleDetail::Index:
      result.index = cursor.expect_integer();
      break;
    case RoleDetail::Name:
      result.name = cursor.expect_string();
      break;
    case RoleDetail::OptionalIndex:
      if (has_number) result.index = cursor.expect_integer();
      break;
    case RoleDetail::IndexAndOptionalName:
      result.index = cursor.expect_integer();
      if (cursor.peek() == '"') result.name = cursor.expect_string();
      break;
  }
  return result;
}

std::vector<Graph> parse_graphs(std::string_view text, ConstantSource* source) {
  Cursor cursor(text);
  Shared shared{.source = source};
  std::vector<Graph> graphs;
  while (!cursor.at_end()) graphs.push_back(GraphParser(cursor, shared, 0).parse());
  return graphs;
}

Graph parse(std::string_view text) {
  Cursor cursor(text);
  Shared shared;
  Graph graph = GraphParser(cursor, shared, 0).parse();
  if (!cursor.at_end()) cursor.fail_expected("the end of the text");
  return graph;
}

std::vector<Graph> parse_all(std::string_view text) { return parse_graphs(text, nullptr); }

}  // namespace tandem::ir
