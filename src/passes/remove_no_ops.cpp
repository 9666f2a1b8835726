#include "passes/remove_no_ops.h"

#include "ops/memory/view_offset.h"
#include "ops/op_table.h"
#include "passes/facts/fill_value.h"
#include "passes/facts/memory_facts.h"
#include "tandem/ir/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

namespace tandem::passes {
namespace {

using Source = std::optional<ir::ValueId>;

/// A number among the operands, or a tensor that holds nothing but this number.
std::optional<c10::Scalar> number_at(const ir::Graph& graph, const ir::Node& node, size_t operand) {
  const ir::Operand& given = node.operands()[operand];
  if (const auto* number = given.get_if<double>()) return c10::Scalar(*number);
  if (const auto* number = given.get_if<bool>()) return c10::Scalar(*number);
  if (const auto* size = given.get_if<ir::Size>()) {
    if (const auto number = size->maybe_value()) return c10::Scalar(*number);
    return std::nullopt;
  }
  const auto* id = given.get_if<ir::ValueId>();
  return id == nullptr || *id == ir::kNoValue ? std::nullopt : fill_value(graph, *id);
}

bool is_integer(const ir::Graph& graph, const ir::Node& node, size_t operand, int64_t expected) {
  const auto number = number_at(graph, node, operand);
  return number && number->isIntegral(false) && number->toLong() == expected;
}

bool is_one(const ir::Graph& graph, const ir::Node& node, size_t operand) {
  const auto number = number_at(graph, node, operand);
  return number && number->toDouble() == 1.0;
}

c10::ScalarType result_dtype(const ir::Graph& graph, const ir::Node& node) {
  return graph.value(node.results()[0]).tensor_type()->dtype;
}

// Of complex numbers, 1 times infinity has a part that is not a number.
bool is_real(const ir::Graph& graph, const ir::Node& node) {
  return !c10::isComplexType(result_dtype(graph, node));
}

Source first(const ir::Graph&, const ir::Node& node) { return tensor_at(node, 0); }
Source second(const ir::Graph&, const ir::Node& node) { return tensor_at(node, 1); }

Source to_copy(const ir::Graph&, const ir::Node& node) {
  // Pinned memory is no fact of the type.
  const auto* pin = node.operands()[4].get_if<bool>();
  return pin != nullptr && *pin ? Source{} : tensor_at(node, 0);
}

Source times_one(const ir::Graph& graph, const ir::Node& node) {
  if (!is_real(graph, node)) return {};
  if (is_one(graph, node, 1)) return tensor_at(node, 0);
  if (tensor_at(node, 1) != ir::kNoValue && is_one(graph, node, 0)) return tensor_at(node, 1);
  return {};
}

Source over_one(const ir::Graph& graph, const ir::Node& node) {
  return is_real(graph, node) && is_one(graph, node, 1) ? tensor_at(node, 0) : Source{};
}

/// `x + zero` and `x - zero`: of a floating x only if the sign of a zero in x survives.
Source with_zero(const ir::Graph& graph, const ir::Node& node, bool subtract) {
  if (!is_real(graph, node) || !is_integer(graph, node, 2, 1)) return {};
  const auto number = number_at(graph, node, 1);
  if (!number || number->toDouble() != 0.0) return {};
  if (c10::isFloatingType(result_dtype(graph, node)) &&
      std::signbit(number->toDouble()) == subtract) {
    return {};
  }
  return tensor_at(node, 0);
}
Source plus_zero(const ir::Graph& graph, const ir::Node& node) {
  return with_zero(graph, node, false);
}
Source minus_zero(const ir::Graph& graph, const ir::Node& node) {
  return with_zero(graph, node, true);
}

Source to_the_first(const ir::Graph& graph, const ir::Node& node) {
  return is_real(graph, node) && is_one(graph, node, 1) ? tensor_at(node, 0) : Source{};
}

Source rounded_integer(const ir::Graph& graph, const ir::Node& node) {
  return c10::isIntegralType(result_dtype(graph, node), /*includeBool=*/false) ? tensor_at(node, 0)
                                                                               : Source{};
}

// slice_scatter(self, src, dim, start, end, step)
Source whole_scatter(const ir::Graph& graph, const ir::Node& node) {
  const ir::Operand& start = node.operands()[3];
  if (!(start.is_none() || is_integer(graph, node, 3, 0)) || !is_integer(graph, node, 5, 1))
    return {};
  return tensor_at(node, 1);  // of the same type, so it covers everything
}

bool all_sizes_are(const ir::Operand& operand, int64_t expected) {
  const auto* sizes = operand.get_if<ir::Operand::Sizes>();
  return sizes != nullptr && std::ranges::all_of(*sizes, [&](const ir::Size& size) {
           return size == ir::Size(expected);
         });
}
Source repeat_once(const ir::Graph&, const ir::Node& node) {
  return all_sizes_are(node.operands()[1], 1) ? tensor_at(node, 0) : Source{};
}
Source pad_by_nothing(const ir::Graph&, const ir::Node& node) {
  return all_sizes_are(node.operands()[1], 0) ? tensor_at(node, 0) : Source{};
}
Source cat_of_one(const ir::Graph&, const ir::Node& node) {
  const auto* tensors = node.operands()[0].get_if<ir::Operand::Values>();
  return tensors != nullptr && tensors->size() == 1 ? tensors->front() : Source{};
}

/// What a call gives back if its result has that type, too.
struct NoOpRow {
  std::string_view name, overload;
  bool is_view;
  Source (*source)(const ir::Graph&, const ir::Node&);
};

// Sorted by name. `as_strided` and `slice` are not here: they can keep the type and move the
// offset; merge-views knows offsets.
constexpr std::array kRows = {
    NoOpRow{"aten::_to_copy", "", false, to_copy},
    NoOpRow{"aten::_unsafe_view", "", true, first},
    NoOpRow{"aten::add", "Scalar", false, plus_zero},
    NoOpRow{"aten::add", "Tensor", false, plus_zero},
    NoOpRow{"aten::alias", "", true, first},
    NoOpRow{"aten::cat", "", false, cat_of_one},
    NoOpRow{"aten::ceil", "", false, rounded_integer},
    NoOpRow{"aten::clone", "", false, first},
    NoOpRow{"aten::constant_pad_nd", "", false, pad_by_nothing},
    NoOpRow{"aten::copy", "", false, second},
    NoOpRow{"aten::detach", "", true, first},
    NoOpRow{"aten::div", "Scalar", false, over_one},
    NoOpRow{"aten::div", "Tensor", false, over_one},
    NoOpRow{"aten::expand", "", true, first},
    NoOpRow{"aten::floor", "", false, rounded_integer},
    NoOpRow{"aten::lift_fresh", "", true, first},
    NoOpRow{"aten::mul", "Scalar", false, times_one},
    NoOpRow{"aten::mul", "Tensor", false, times_one},
    NoOpRow{"aten::pow", "Tensor_Scalar", false, to_the_first},
    NoOpRow{"aten::repeat", "", false, repeat_once},
    NoOpRow{"aten::round", "", false, rounded_integer},
    NoOpRow{"aten::slice_scatter", "", false, whole_scatter},
    NoOpRow{"aten::sub", "Scalar", false, minus_zero},
    NoOpRow{"aten::sub", "Tensor", false, minus_zero},
    NoOpRow{"aten::trunc", "", false, rounded_integer},
    NoOpRow{"aten::view", "", true, first},
};

const NoOpRow* find_row(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op || node.results().size() != 1 || node.operands().empty() ||
      node.results()[0] == ir::kNoValue) {
    return nullptr;
  }
  const c10::OperatorName& op = node.op().operator_name();
  const auto* row = std::ranges::lower_bound(kRows, std::string_view(op.name), {}, &NoOpRow::name);
  for (; row != kRows.end() && row->name == op.name; ++row) {
    if (row->overload == op.overload_name) return ops::info(node.op()).marked ? nullptr : row;
  }
  return nullptr;
}

class NoOpRemover {
 public:
  explicit NoOpRemover(ir::Graph& graph) : graph_(graph), memory_(graph), tangents_(graph) {}

  PassResult run() {
    PassResult result;
    graph_.for_each_node([&](ir::Node& node) {
      const NoOpRow* row = find_row(node);
      if (row == nullptr) return;
      const Source source = row->source(graph_, node);
      if (!source || *source == ir::kNoValue || !is_same(node, *row, *source)) return;
      memory_.replaced(node.results()[0], *source);
      graph_.replace_all_uses(node.results()[0], *source);
      graph_.erase(node);
      ++result.changes;
    });
    return result;
  }

 private:
  bool is_same(const ir::Node& node, const NoOpRow& row, ir::ValueId source) const {
    const ir::ValueId result = node.results()[0];
    if (!(graph_.value(source).type() == graph_.value(result).type())) return false;
    if (row.is_view) return !would_merge_outputs(graph_.value(source), graph_.value(result));
    return memory_.may_leave_out(result, source) && is_plain(source) &&
           keeps_tangents(node, source);
  }

  /// What a type does not say, a conjugation that is still to be done, would be lost with a copy.
  bool is_plain(ir::ValueId value) const {
    while (!graph_.value(value).is_input()) {
      const ir::Value& here = graph_.value(value);
      const ir::Node& node = graph_.node(here.producer());
      if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view) return true;
      if (!ops::offset_in_source(graph_, node, static_cast<size_t>(here.result_index())))
        return false;
      value = *node.operands()[0].get_if<ir::ValueId>();
    }
    return true;
  }

  bool keeps_tangents(const ir::Node& node, ir::ValueId source) const {
    bool lost = false;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value(
          [&](ir::ValueId id) { lost = lost || (id != source && tangents_.depends(id)); });
    }
    return !lost;
  }

  ir::Graph& graph_;
  MemoryFacts memory_;
  const TangentUse tangents_;
};

}  // namespace

PassResult remove_no_ops(ir::Graph& graph) { return NoOpRemover(graph).run(); }

}  // namespace tandem::passes
