#include "ir/generalise.h"

#include "base/error.h"
#include "ir/sized_type.h"
#include "ir/tensor_data.h"
#include "ir/text/op_names.h"
#include "shapes/evaluate.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>

namespace tandem::ir {
namespace {

using Samples = std::vector<int64_t>;

class Expressions {
 public:
  explicit Expressions(const Recordings& recordings) : recordings_(recordings) {}

  std::optional<Size> size(const Samples& numbers) const {
    return recordings_.samples.expression(numbers);
  }

  std::optional<Size> stride(const Samples& numbers) const {
    if (auto found = size(numbers)) return found;
    Samples left;
    for (size_t run = 0; run < numbers.size(); ++run) {
      if (!recordings_.is_small[run]) left.push_back(numbers[run]);
    }
    if (left.empty() || !recordings_.larger.tell_apart()) return std::nullopt;
    return recordings_.larger.expression(left);
  }

 private:
  const Recordings& recordings_;
};

/// One type of the first run, and the same of the others.
class Types {
 public:
  explicit Types(const Expressions& expressions) : expressions_(expressions) {}

  /// `of(run)`: the type there. Nullptr: as it is.
  template <class Of>
  std::optional<Unexplained> put(TypePtr& type, size_t runs, const Of& of) const {
    if (type == nullptr) return std::nullopt;
    TensorType made = *type;
    bool changed = false;
    const auto look = [&](std::vector<Size> TensorType::* list, const char* what,
                          auto expression) -> std::optional<Unexplained> {
      for (size_t i = 0; i < (made.*list).size(); ++i) {
        Samples numbers;
        for (size_t run = 0; run < runs; ++run) numbers.push_back(((*of(run)).*list)[i].value());
        if (std::ranges::count(numbers, numbers[0]) == std::ssize(numbers)) continue;
        const std::optional<Size> found = expression(numbers);
        if (!found) return Unexplained{.what = what, .seen = numbers};
        (made.*list)[i] = *found;
        changed = true;
      }
      return std::nullopt;
    };
    if (auto error = look(&TensorType::sizes, "a size",
                          [&](const Samples& n) { return expressions_.size(n); }))
      return error;
    if (auto error = look(&TensorType::strides, "a stride",
                          [&](const Samples& n) { return expressions_.stride(n); }))
      return error;
    if (changed) type = std::make_shared<const TensorType>(std::move(made));
    return std::nullopt;
  }

 private:
  const Expressions& expressions_;
};

bool same_double(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

class Generaliser {
 public:
  Generaliser(Graph& graph, std::span<const Graph* const> others, const Recordings& recordings)
      : graph_(graph),
        others_(others),
        symbols_(recordings.symbols),
        expressions_(recordings),
        types_(expressions_) {}

  std::optional<Unexplained> run() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const auto id = [&](size_t run) { return at(run).inputs()[i]; };
      if (auto error = value(id)) return error;
    }
    std::vector<NodeId> nodes(runs());
    for (size_t run = 0; run < runs(); ++run) nodes[run] = at(run).first_node();
    for (; nodes[0] != kNoNode; next(nodes)) {
      if (auto error = node(nodes)) {
        error->line = graph_.node(nodes[0]).location();
        return error;
      }
    }
    const std::unordered_set<std::string> used = mentioned_symbols(graph_);
    for (const Symbol& symbol : symbols_) {
      if (used.contains(symbol.name)) graph_.add_symbol(symbol);
    }
    return std::nullopt;
  }

 private:
  size_t runs() const { return others_.size() + 1; }
  const Graph& at(size_t run) const { return run == 0 ? graph_ : *others_[run - 1]; }
  void next(std::vector<NodeId>& nodes) const {
    for (size_t run = 0; run < runs(); ++run) nodes[run] = at(run).next(nodes[run]);
  }

  template <class IdOf>
  std::optional<Unexplained> value(const IdOf& id) {
    const ValueId mine = id(0);
    if (mine == kNoValue || graph_.value(mine).tensor_type() == nullptr) return std::nullopt;
    TypePtr type = graph_.value(mine).tensor_type();
    auto error =
        types_.put(type, runs(), [&](size_t run) { return at(run).value(id(run)).tensor_type(); });
    if (!error && type != graph_.value(mine).tensor_type()) graph_.set_type(mine, Type(type));
    return error;
  }

  std::optional<Unexplained> node(const std::vector<NodeId>& nodes) {
    Node& mine = graph_.node(nodes[0]);
    const auto text = [&] {
      return mine.kind() == NodeKind::Op ? op_text(mine.op()) : std::string("a constant");
    };
    for (size_t i = 0; i < mine.results().size(); ++i) {
      const auto id = [&](size_t run) { return at(run).node(nodes[run]).results()[i]; };
      if (auto error = value(id)) {
        error->what += " of a result of " + text();
        return error;
      }
    }
    if (mine.kind() == NodeKind::Constant) {
      for (size_t run = 1; run < runs(); ++run) {
        if (!same_data(mine.constant(), at(run).node(nodes[run]).constant()))
          return Unexplained{.what = "the data of a constant"};
      }
      return std::nullopt;
    }
    for (size_t i = 0; i < mine.operands().size(); ++i) {
      const auto other = [&](size_t run) -> const Operand& {
        return at(run).node(nodes[run]).operands()[i];
      };
      std::optional<Operand> made;
      if (!operand(mine, i, other, made))
        return Unexplained{.what = "an argument of " + text(), .seen = seen_};
      if (made) graph_.set_operand(mine, i, *std::move(made));
    }
    return std::nullopt;
  }

  /// Whether an operand says how far elements lie apart.
  static bool is_stride(const Node& node, size_t operand) {
    if (node.kind() != NodeKind::Op) return false;
    const std::string& op = node.op().operator_name().name;
    if (op != "aten::as_strided" && op != "aten::new_empty_strided" && op != "aten::empty_strided")
      return false;
    const std::string& name = node.op().schema().arguments()[operand].name();
    return name == "stride" || name == "strides";
  }

  template <class Other>
  bool operand(const Node& node, size_t index, const Other& other, std::optional<Operand>& made) {
    const Operand& mine = node.operands()[index];
    seen_.clear();
    const auto expression = [&](const auto& number) -> std::optional<Size> {
      seen_.clear();
      for (size_t run = 0; run < runs(); ++run) seen_.push_back(number(run));
      if (std::ranges::count(seen_, seen_[0]) == std::ssize(seen_)) return Size(seen_[0]);
      return is_stride(node, index) ? expressions_.stride(seen_) : expressions_.size(seen_);
    };
    if (mine.get_if<Size>()) {
      const auto found =
          expression([&](size_t run) { return other(run).template get_if<Size>()->value(); });
      if (!found) return false;
      if (!found->is_constant()) made = Operand(*found);
    } else if (const auto* sizes = mine.get_if<Operand::Sizes>()) {
      Operand::Sizes list;
      bool changed = false;
      for (size_t k = 0; k < sizes->size(); ++k) {
        const auto found = expression(
            [&](size_t run) { return (*other(run).template get_if<Operand::Sizes>())[k].value(); });
        if (!found) return false;
        changed = changed || !found->is_constant();
        list.push_back(*found);
      }
      if (changed) made = Operand(std::move(list));
    } else if (const auto* number = mine.get_if<double>()) {
      for (size_t run = 1; run < runs(); ++run) {
        if (!same_double(*number, *other(run).template get_if<double>())) return false;
      }
    } else if (mine.get_if<std::vector<double>>() || mine.get_if<std::complex<double>>()) {
      for (size_t run = 1; run < runs(); ++run) {
        if (!(mine == other(run))) return false;
      }
    }
    return true;
  }

  static bool same_data(const at::Tensor& a, const at::Tensor& b) {
    return type_of(a) == type_of(b) && constant_bytes(a) == constant_bytes(b);
  }

  Graph& graph_;
  const std::span<const Graph* const> others_;
  const std::vector<Symbol>& symbols_;
  const Expressions expressions_;
  const Types types_;
  Samples seen_;
};

/// A view is taken again from its source alone.
std::optional<Unexplained> foreign_symbols(const Graph& replay) {
  std::unordered_set<std::string> known;
  for (const Size& size : replay.value(replay.inputs()[0]).tensor_type()->sizes)
    known.insert(shapes::symbol_name(size));
  std::optional<Unexplained> error;
  replay.for_each_node([&](const Node& node) {
    for (const Operand& operand : node.operands()) {
      std::vector<Size> sizes;
      if (const auto* size = operand.get_if<Size>()) sizes.push_back(*size);
      if (const auto* list = operand.get_if<Operand::Sizes>()) sizes = *list;
      for (const Size& size : sizes) {
        if (size.is_constant() || error) continue;
        for (const std::string& name : size.symbols()) {
          if (!known.contains(name)) {
            error = Unexplained{.what = "an argument of " + op_text(node.op()) +
                                        ", which makes a result that is a view of memory without "
                                        "that size,",
                                .line = node.location()};
          }
        }
      }
    }
  });
  return error;
}

}  // namespace

std::optional<Unexplained> generalise(Graph& graph, std::span<const Graph* const> others,
                                      const Recordings& recordings) {
  return Generaliser(graph, others, recordings).run();
}

std::optional<Unexplained> generalise(Signature& signature,
                                      std::span<const Signature* const> others,
                                      const Recordings& recordings) {
  const Expressions expressions(recordings);
  const Types types(expressions);
  const auto at = [&](size_t run) -> const Signature& {
    return run == 0 ? signature : *others[run - 1];
  };
  const size_t runs = others.size() + 1;
  const auto put = [&](auto list, const char* what) -> std::optional<Unexplained> {
    for (size_t i = 0; i < (signature.*list).size(); ++i) {
      const TypePtr first = (signature.*list)[i].type;
      auto error = types.put((signature.*list)[i].type, runs, [&](size_t run) {
        return run == 0 ? first : (at(run).*list)[i].type;
      });
      if (!error) continue;
      error->what = base::str(error->what, " of ", what, " ", i);
      return error;
    }
    return std::nullopt;
  };
  if (auto error = put(&Signature::outputs, "result")) return error;
  if (auto error = put(&Signature::bases, "base")) return error;
  if (auto error = put(&Signature::tangents, "tangent")) return error;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const InputFacts& mine = signature.inputs[i];
    for (size_t run = 1; run < runs; ++run) {
      const InputFacts& other = at(run).inputs[i];
      const bool same_type =
          mine.type_after == other.type_after ||
          (mine.type_after && other.type_after && *mine.type_after == *other.type_after);
      if (!same_type || mine.offset_after != other.offset_after ||
          mine.bytes_after != other.bytes_after)
        return Unexplained{.what = "what the call makes of the sizes of " + to_string(mine.role)};
    }
  }
  for (size_t i = 0; i < signature.replays.size(); ++i) {
    std::vector<const Graph*> graphs;
    for (const Signature* other : others) graphs.push_back(&other->replays[i].graph);
    Graph& graph = signature.replays[i].graph;
    if (auto error = generalise(graph, graphs, recordings)) return error;
    if (auto error = foreign_symbols(graph)) return error;
  }
  return std::nullopt;
}

}  // namespace tandem::ir
