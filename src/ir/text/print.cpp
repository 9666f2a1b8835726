#include "ir/tensor_data.h"
#include "ir/text/printer.h"
#include "ir/text/words.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace tandem::ir {
namespace {

/// Elements of a constant that a one-line print shows before it gives up.
constexpr size_t kShownElements = 8;

/// Gives every value that appears a name of its own that parses back.
class Namer {
 public:
  explicit Namer(const Graph& graph) : graph_(graph), names_(graph.value_limit()) {
    for_each_definition([&](const Value& value) { claim(value); });
    for_each_definition([&](const Value& value) { number(value); });
  }

  std::vector<std::string> take() { return std::move(names_); }

 private:
  template <class Fn>
  void for_each_definition(Fn&& fn) {
    for (ValueId input : graph_.inputs()) fn(graph_.value(input));
    graph_.for_each_node([&](const Node& node) {
      for (ValueId result : node.results()) {
        if (result != kNoValue) fn(graph_.value(result));
      }
    });
  }

  std::string& name_of(const Value& value) { return names_[static_cast<size_t>(value.id())]; }

  void claim(const Value& value) {
    if (value.name().empty()) return;
    std::string name = value.name();
    for (char& c : name) {
      if (!is_name_char(c)) c = '_';
    }
    // The first value with a name keeps it, the others get a suffix.
    if (!used_.insert(name).second) {
      int64_t& suffix = suffixes_[name];
      std::string unique;
      do {
        unique = name + '.' + std::to_string(++suffix);
      } while (!used_.insert(unique).second);
      name = std::move(unique);
    }
    name_of(value) = std::move(name);
  }

  void number(const Value& value) {
    if (!value.name().empty()) return;
    std::string& name = name_of(value);
    do {
      name = std::to_string(next_++);
    } while (used_.contains(name));
  }

  const Graph& graph_;
  std::vector<std::string> names_;
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int64_t> suffixes_;
  int64_t next_ = 0;
};

class Printer {
 public:
  Printer(std::string& out, const Graph& graph, const std::vector<std::string>& names,
          ConstantStore* store = nullptr, size_t indent = 0)
      : out_(out), graph_(graph), names_(names), store_(store), indent_(indent) {}

  void graph() {
    head();
    Phase phase = Phase::Forward;
    graph_.for_each_node([&](const Node& node) {
      if (node.phase() != phase) {
        phase = node.phase();
        new_line();
        out_ += phase == Phase::Backward ? "backward:" : "forward:";
      }
      new_line();
      this->node(node, /*whole=*/true);
    });
    new_line();
    outputs();
    out_ += '\n';
    out_.append(indent_, ' ');
    out_ += '}';
  }

  /// `whole`: with the body of a region and every element of a constant.
  void node(const Node& node, bool whole) {
    results(node);
    switch (node.kind()) {
      case NodeKind::Op:
        op(node);
        break;
      case NodeKind::Constant:
        constant(node.constant(), whole);
        break;
      case NodeKind::Region:
        region(node, whole);
        break;
    }
    location(node.location());
  }

 private:
  void new_line() {
    out_ += '\n';
    out_.append(indent_ + 2, ' ');
  }

  void head() {
    out_ += "graph ";
    if (is_name(graph_.name())) {
      out_ += graph_.name();
    } else if (!graph_.name().empty()) {
      append_quoted(out_, graph_.name());
    }
    symbols();
    out_ += '(';
    bool first = true;
    for (ValueId input : graph_.inputs()) {
      separate(first);
      definition(input);
      out_ += ' ';
      append_descriptor(out_, graph_.input_role(input));
    }
    out_ += ") {";
  }

  void symbols() {
    if (graph_.symbols().empty()) return;
    out_ += '[';
    bool first = true;
    for (const Symbol& symbol : graph_.symbols()) {
      separate(first);
      out_ += symbol.name;
      out_ += ": ";
      append_integer(out_, symbol.min);
      out_ += "..";
      if (symbol.max) append_integer(out_, *symbol.max);
      if (symbol.hint) {
        out_ += " hint ";
        append_integer(out_, *symbol.hint);
      }
    }
    out_ += ']';
  }

  void outputs() {
    out_ += "return";
    bool first = true;
    for (const Output& output : graph_.outputs()) {
      out_ += first ? " " : ", ";
      first = false;
      value(output.value);
      out_ += ": ";
      append_descriptor(out_, output.role);
    }
  }

  void results(const Node& node) {
    if (node.result_shape().empty()) return;
    size_t next = 0;
    bool first = true;
    // The verifier prints broken nodes too: one may have fewer results than its shape says.
    const auto take = [&] {
      return next < node.results().size() ? node.results()[next++] : kNoValue;
    };
    for (int64_t length : node.result_shape()) {
      separate(first);
      if (length == kSingle) {
        definition(take());
        continue;
      }
      out_ += '[';
      bool first_element = true;
      for (int64_t i = 0; i < length; ++i) {
        separate(first_element);
        definition(take());
      }
      out_ += ']';
    }
    out_ += " = ";
  }

  void op(const Node& node) {
    const c10::FunctionSchema& schema = node.op().schema();
    std::string_view name = schema.name();
    size_t colons = name.find("::");
    out_ += name.substr(0, colons);
    out_ += '.';
    out_ += name.substr(colons + 2);
    if (!schema.overload_name().empty()) {
      out_ += '.';
      out_ += schema.overload_name();
    }
    out_ += '(';
    bool first = true;
    for (size_t i = 0; i < node.operands().size(); ++i) {
      separate(first);
      if (i < schema.arguments().size() && schema.arguments()[i].kwarg_only()) {
        out_ += schema.arguments()[i].name();
        out_ += '=';
      }
      operand(node.operands()[i]);
    }
    out_ += ')';
  }

  void constant(const at::Tensor& tensor, bool whole) {
    out_ += "constant ";
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) out_ += "wrapped ";
    if (store_ && store_->takes(tensor)) {
      store_->append_reference(out_, tensor);
      return;
    }
    out_ += '{';
    std::vector<std::byte> bytes = constant_bytes(tensor);
    size_t item_bytes = tensor.element_size();
    size_t count = bytes.size() / item_bytes;
    size_t shown = whole ? count : std::min(count, kShownElements);
    bool first = true;
    for (size_t i = 0; i < shown; ++i) {
      separate(first);
      append_element(out_, tensor.scalar_type(), bytes.data() + i * item_bytes);
    }
    if (shown < count) out_ += ", ...";
    out_ += '}';
  }

  void region(const Node& node, bool whole) {
    out_ += "region ";
    append_quoted(out_, node.label());
    out_ += " (";
    bool first = true;
    for (const Operand& each : node.operands()) {
      separate(first);
      operand(each);
    }
    out_ += ") ";
    if (whole) {
      std::vector<std::string> names = value_names(node.region());
      Printer(out_, node.region(), names, store_, indent_ + 2).graph();
    } else {
      out_ += "graph {...}";
    }
  }

  void location(const Location& location) {
    if (!location.known()) return;
    out_ += "  # ";
    for (char c : to_string(location)) out_ += static_cast<uint8_t>(c) < 0x20 ? '?' : c;
  }

  void definition(ValueId id) {
    value(id);
    if (id == kNoValue) return;
    out_ += ": ";
    append_type(out_, graph_.value(id).type());
  }

  void value(ValueId id) {
    if (id == kNoValue) {
      out_ += "none";
      return;
    }
    out_ += '%';
    // A broken graph must still print: that is how its violations are reported.
    auto index = static_cast<size_t>(id);
    if (index < names_.size() && !names_[index].empty()) {
      out_ += names_[index];
    } else {
      out_ += "undefined.";
      append_integer(out_, static_cast<int64_t>(id));
    }
  }

  void operand(const Operand& operand) {
    std::visit([&](const auto& data) { this->data(data); }, operand.data);
  }

  void data(Operand::None) { out_ += "none"; }
  void data(ValueId id) { value(id); }
  void data(bool flag) { out_ += flag ? "true" : "false"; }
  void data(const Size& size) { append_size(out_, size); }
  void data(double number) { append_float(out_, number); }
  void data(const std::complex<double>& number) {
    out_ += '(';
    append_float(out_, number.real());
    out_ += ", ";
    append_float(out_, number.imag());
    out_ += ')';
  }
  void data(const std::string& text) { append_quoted(out_, text); }
  void data(c10::ScalarType dtype) { out_ += dtype_word(dtype); }
  void data(c10::Layout layout) { out_ += layout_name(layout); }
  void data(c10::MemoryFormat format) { out_ += memory_format_name(format); }
  void data(const c10::Device& device) { out_ += device.str(); }
  void data(GeneratorRef generator) {
    out_ += "generator ";
    append_integer(out_, generator.index);
  }
  template <class T>
  void data(const std::vector<T>& list) {
    out_ += '[';
    bool first = true;
    for (const T& element : list) {
      separate(first);
      data(element);
    }
    out_ += ']';
  }

  void separate(bool& first) {
    if (!first) out_ += ", ";
    first = false;
  }

  std::string& out_;
  const Graph& graph_;
  const std::vector<std::string>& names_;
  ConstantStore* store_;
  size_t indent_;
};

}  // namespace

std::vector<std::string> value_names(const Graph& graph) { return Namer(graph).take(); }

void append_graph(std::string& out, const Graph& graph, ConstantStore* store) {
  std::vector<std::string> names = value_names(graph);
  Printer(out, graph, names, store).graph();
  out += '\n';
}

void append_node(std::string& out, const Graph& graph, const Node& node,
                 const std::vector<std::string>& names) {
  Printer(out, graph, names).node(node, /*whole=*/false);
}

std::string print(const Graph& graph) {
  std::string out;
  append_graph(out, graph, nullptr);
  return out;
}

std::string print(const Graph& graph, const Node& node) {
  std::string out;
  append_node(out, graph, node, value_names(graph));
  return out;
}

}  // namespace tandem::ir
