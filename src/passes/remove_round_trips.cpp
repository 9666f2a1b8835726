#include "passes/remove_round_trips.h"

#include "ops/memory/view_offset.h"
#include "ops/op_table.h"
#include "passes/facts/memory_facts.h"
#include "tandem/ir/graph.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::passes {
namespace {

/// Parts that lie beside the one that is read are skipped this far up: bounds the time per node.
constexpr int kMostTrips = 32;

bool is_op(const ir::Node& node, std::string_view name, std::string_view overload = "") {
  return node.kind() == ir::NodeKind::Op && node.op().operator_name().name == name &&
         node.op().operator_name().overload_name == overload;
}

std::optional<int64_t> integer_at(const ir::Node& node, size_t operand) {
  const auto* size = node.operands()[operand].get_if<ir::Size>();
  return size == nullptr ? std::nullopt : size->maybe_value();
}

/// `x[...]` and the function that puts something there. The operands that say where follow the
/// tensors.
struct PartRow {
  std::string_view get, get_overload, put;
};
constexpr std::array kParts = {
    PartRow{"aten::diagonal", "", "aten::diagonal_scatter"},
    PartRow{"aten::select", "int", "aten::select_scatter"},
    PartRow{"aten::slice", "Tensor", "aten::slice_scatter"},
};

const PartRow* part_of_get(const ir::Node& node) {
  const auto* row = std::ranges::find_if(
      kParts, [&](const PartRow& part) { return is_op(node, part.get, part.get_overload); });
  return row == kParts.end() ? nullptr : row;
}
const PartRow* part_of_put(const ir::Node& node) {
  const auto* row =
      std::ranges::find_if(kParts, [&](const PartRow& part) { return is_op(node, part.put); });
  return row == kParts.end() ? nullptr : row;
}

/// A stretch of one dimension, both ends within the size.
struct Stretch {
  int64_t dim = 0, begin = 0, end = 0, step = 1;
};

/// Where a select or slice of `type` lies, or the scatter to match; `first` is the operand that
/// names the dimension.
std::optional<Stretch> stretch_of(const ir::Node& node, size_t first, const PartRow& row,
                                  const ir::TensorType& type) {
  if (!type.is_static()) return std::nullopt;
  const auto dim = integer_at(node, first);
  if (!dim) return std::nullopt;
  Stretch stretch{.dim = *dim < 0 ? *dim + type.rank() : *dim};
  const int64_t size = type.sizes[static_cast<size_t>(stretch.dim)].value();
  const auto inside = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  if (row.get == "aten::select") {
    const auto index = integer_at(node, first + 1);
    if (!index) return std::nullopt;
    stretch.begin = *index < 0 ? *index + size : *index;
    stretch.end = stretch.begin + 1;
    return stretch;
  }
  if (row.get != "aten::slice") return std::nullopt;
  const auto end_at = [&](size_t operand, int64_t otherwise) -> std::optional<int64_t> {
    if (node.operands()[operand].is_none()) return otherwise;
    const auto given = integer_at(node, operand);
    return given ? std::optional(inside(*given)) : std::nullopt;
  };
  const auto begin = end_at(first + 1, 0), end = end_at(first + 2, size);
  const auto step = integer_at(node, first + 3);
  if (!begin || !end || !step) return std::nullopt;
  stretch.begin = *begin;
  stretch.end = *end;
  stretch.step = *step;
  return stretch;
}

/// Every number of one dtype is one of the other.
bool widens(c10::ScalarType from, c10::ScalarType to) {
  constexpr auto kPairs = std::to_array<std::pair<c10::ScalarType, c10::ScalarType>>({
      {at::kHalf, at::kFloat},      {at::kHalf, at::kDouble},  {at::kBFloat16, at::kFloat},
      {at::kBFloat16, at::kDouble}, {at::kFloat, at::kDouble}, {at::kInt, at::kLong},
      {at::kShort, at::kInt},       {at::kShort, at::kLong},   {at::kChar, at::kShort},
      {at::kChar, at::kInt},        {at::kChar, at::kLong},    {at::kByte, at::kShort},
      {at::kByte, at::kInt},        {at::kByte, at::kLong},    {at::kInt, at::kDouble},
      {at::kShort, at::kFloat},     {at::kShort, at::kDouble}, {at::kChar, at::kFloat},
      {at::kChar, at::kDouble},     {at::kByte, at::kFloat},   {at::kByte, at::kDouble},
      {at::kBool, at::kFloat},      {at::kBool, at::kDouble},  {at::kBool, at::kLong},
      {at::kBool, at::kInt},        {at::kBool, at::kHalf},    {at::kBool, at::kBFloat16},
  });
  return std::ranges::find(kPairs, std::pair(from, to)) != kPairs.end();
}

class RoundTripRemover {
 public:
  explicit RoundTripRemover(ir::Graph& graph) : graph_(graph), memory_(graph), tangents_(graph) {}

  PassResult run() {
    graph_.for_each_node([&](ir::Node& node) {
      if (node.kind() != ir::NodeKind::Op || node.results().empty() || node.operands().empty())
        return;
      if (ops::info(node.op()).marked) return;
      visit(node);
    });
    return result_;
  }

 private:
  void visit(ir::Node& node) {
    if (part_of_get(node) != nullptr) {
      get_part(node);
    } else if (part_of_put(node) != nullptr) {
      put_part(node);
    } else if (is_op(node, "aten::copy")) {
      copy(node);
    } else if (is_op(node, "aten::cat")) {
      cat(node);
    } else if (is_op(node, "aten::split", "Tensor") || is_op(node, "aten::split_with_sizes")) {
      split(node);
    } else if (is_op(node, "aten::_to_copy")) {
      cast(node);
    } else if (is_op(node, "aten::neg")) {
      negate(node);
    }
  }

  const ir::Node* producer(ir::ValueId value) const {
    if (value == ir::kNoValue) return nullptr;
    const ir::NodeId id = graph_.value(value).producer();
    return id == ir::kNoNode ? nullptr : &graph_.node(id);
  }
  const ir::Type& type(ir::ValueId value) const { return graph_.value(value).type(); }

  static bool same_place(const ir::Node& a, size_t from_a, const ir::Node& b, size_t from_b) {
    return std::ranges::equal(a.operands().subspan(from_a), b.operands().subspan(from_b));
  }

  /// Whoever read `result` reads `source`, which holds the same in other memory.
  bool take(ir::Node& node, size_t index, ir::ValueId source) {
    const ir::ValueId result = node.results()[index];
    if (result == ir::kNoValue || source == ir::kNoValue || !graph_.value(result).has_users() ||
        !(type(result) == type(source)) || !memory_.may_leave_out(result, source)) {
      return false;
    }
    memory_.replaced(result, source);
    graph_.replace_all_uses(result, source);
    ++result_.changes;
    erase_if_unread(node);
    return true;
  }

  void erase_if_unread(ir::Node& node) {
    const bool read = std::ranges::any_of(node.results(), [&](ir::ValueId id) {
      return id != ir::kNoValue && graph_.value(id).has_users();
    });
    if (!read) graph_.erase(node);
  }

  void read_instead(ir::Node& node, size_t operand, ir::ValueId source) {
    graph_.set_operand(node, operand, source);
    ++result_.changes;
  }

  // ---- parts ----

  /// get(put(base, part, where), where) is the part; elsewhere it is a part of base.
  void get_part(ir::Node& node) {
    const PartRow& row = *part_of_get(node);
    for (int step = 0; step < kMostTrips; ++step) {
      const ir::Node* put = producer(tensor_at(node, 0));
      if (put == nullptr || !is_op(*put, row.put)) return;
      const ir::ValueId base = tensor_at(*put, 0), part = tensor_at(*put, 1);
      if (same_place(node, 1, *put, 2)) {
        if (!tangents_.depends(base)) take(node, 0, part);
        return;
      }
      if (!lies_beside(node, *put, row) || tangents_.depends(part) ||
          !(type(base) == type(put->results()[0])) ||
          !memory_.may_leave_out(node.results()[0], base)) {
        return;
      }
      memory_.replaced(node.results()[0], base);
      read_instead(node, 0, base);
    }
  }

  bool lies_beside(const ir::Node& get, const ir::Node& put, const PartRow& row) const {
    const ir::TypePtr& whole = type(tensor_at(put, 0)).tensor;
    if (whole == nullptr) return false;
    const auto a = stretch_of(get, 1, row, *whole), b = stretch_of(put, 2, row, *whole);
    return a && b && a->dim == b->dim && (a->end <= b->begin || b->end <= a->begin);
  }

  void put_part(ir::Node& node) {
    const PartRow& row = *part_of_put(node);
    // put(base, get(base, where), where) changes nothing.
    const ir::Node* got = producer(tensor_at(node, 1));
    if (got != nullptr && is_op(*got, row.get, row.get_overload) &&
        tensor_at(*got, 0) == tensor_at(node, 0) && same_place(node, 2, *got, 1) &&
        take(node, 0, tensor_at(node, 0))) {
      return;
    }
    // put(put(base, a, where), b, where) leaves nothing of a.
    const ir::Node* put = producer(tensor_at(node, 0));
    if (put == nullptr || !is_op(*put, row.put) || !same_place(node, 2, *put, 2)) return;
    const ir::ValueId base = tensor_at(*put, 0), over = put->results()[0];
    if (tangents_.depends(tensor_at(*put, 1)) || !(type(base) == type(over)) ||
        !memory_.may_leave_out(over, base)) {
      return;
    }
    memory_.replaced(over, base);
    read_instead(node, 0, base);
  }

  // ---- copies ----

  /// libtorch computes copy(old, new) by copying `old` and overwriting the copy: only `new`
  /// matters.
  void copy(ir::Node& node) {
    const ir::ValueId old = tensor_at(node, 0), data = tensor_at(node, 1);
    const ir::ValueId result = node.results()[0];
    if (old == ir::kNoValue || data == ir::kNoValue || tangents_.depends(old)) return;
    if (take(node, 0, data)) return;
    const ir::TensorType& from = *type(data).tensor;
    const ir::TensorType& to = *type(result).tensor;
    if (!(from.sizes == to.sizes) || !to.is_contiguous() || from.layout != c10::kStrided ||
        from.device != to.device) {
      return;
    }
    static const auto clone = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    static const auto to_copy =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
    const ir::Operand none, format = c10::MemoryFormat::Contiguous;
    if (from.dtype == to.dtype) {
      become(node, {.op = clone, .operands = {data, format}});
    } else {
      become(node, {.op = to_copy, .operands = {data, to.dtype, none, none, none, false, format}});
    }
  }

  /// Another op for the single result of a node.
  void become(ir::Node& node, ir::OpSpec spec) {
    const ir::ValueId result = node.results()[0];
    spec.results = {type(result)};
    spec.phase = node.phase();
    spec.location = node.location();
    graph_.set_insert_point(node.id());
    const ir::ValueId replacement = graph_.add_op(std::move(spec)).results()[0];
    graph_.set_insert_point(ir::kNoNode);
    memory_.replaced(result, replacement);
    graph_.replace_all_uses(result, replacement);
    const std::string name = graph_.value(result).name();
    graph_.erase(node);
    graph_.set_name(replacement, name);
    ++result_.changes;
  }

  // ---- pieces ----

  std::optional<int64_t> dim_of(const ir::Node& node, size_t operand, ir::ValueId tensor) const {
    const auto dim = integer_at(node, operand);
    const ir::TypePtr& shape = type(tensor).tensor;
    if (!dim || shape == nullptr) return std::nullopt;
    return *dim < 0 ? *dim + shape->rank() : *dim;
  }

  /// cat of all results of a split, in order.
  void cat(ir::Node& node) {
    const auto* pieces = node.operands()[0].get_if<ir::Operand::Values>();
    if (pieces == nullptr || pieces->empty()) return;
    const ir::Node* from = producer(pieces->front());
    if (from == nullptr ||
        !(is_op(*from, "aten::split", "Tensor") || is_op(*from, "aten::split_with_sizes")) ||
        !std::ranges::equal(*pieces, from->results())) {
      return;
    }
    const ir::ValueId whole = tensor_at(*from, 0), result = node.results()[0];
    if (whole == ir::kNoValue || dim_of(node, 1, whole) != dim_of(*from, 2, whole)) return;
    if (take(node, 0, whole)) return;
    const ir::TensorType& to = *type(result).tensor;
    if (!to.is_contiguous() || !(type(whole).tensor->sizes == to.sizes) ||
        type(whole).tensor->dtype != to.dtype) {
      return;
    }
    static const auto clone = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    become(node, {.op = clone, .operands = {whole, c10::MemoryFormat::Contiguous}});
  }

  /// The pieces of a cat, where they are laid out like what the cat was made of.
  void split(ir::Node& node) {
    const ir::Node* from = producer(tensor_at(node, 0));
    if (from == nullptr || !is_op(*from, "aten::cat")) return;
    const auto* pieces = from->operands()[0].get_if<ir::Operand::Values>();
    if (pieces == nullptr || pieces->size() != node.results().size()) return;
    const ir::ValueId whole = tensor_at(node, 0);
    const auto dim = dim_of(*from, 1, whole);
    if (!dim || dim != dim_of(node, 2, whole)) return;
    for (size_t i = 0; i < pieces->size(); ++i) {
      const ir::ValueId piece = (*pieces)[i], result = node.results()[i];
      if (result == ir::kNoValue || !(type(piece).tensor->sizes == type(result).tensor->sizes))
        return;  // split at other places
    }
    // The piece by itself would not show that the whole also depends on the tangents of other
    // pieces.
    if (std::ranges::any_of(*pieces, [&](ir::ValueId id) { return tangents_.depends(id); })) return;
    const ir::Operand::Values sources = *pieces;
    for (size_t i = 0; i < sources.size() && !node.erased(); ++i) take(node, i, sources[i]);
  }

  // ---- casts and signs ----

  void cast(ir::Node& node) {
    const ir::ValueId middle = tensor_at(node, 0);
    const ir::Node* before = producer(middle);
    if (before == nullptr || !is_op(*before, "aten::_to_copy")) return;
    const ir::ValueId source = tensor_at(*before, 0), result = node.results()[0];
    const ir::TensorType &from = *type(source).tensor, &between = *type(middle).tensor,
                         &to = *type(result).tensor;
    if (from.device != between.device || between.device != to.device ||
        !widens(from.dtype, between.dtype)) {
      return;
    }
    if (from.dtype == to.dtype) {
      if (is_plain(source)) take(node, 0, source);
      return;
    }
    // A cast that is asked for no layout keeps the one of its operand, so both casts must find the
    // same.
    const bool keeps_layout = node.operands()[6].is_none() && before->operands()[6].is_none();
    if (widens(between.dtype, to.dtype) && widens(from.dtype, to.dtype) && keeps_layout &&
        from.strides == between.strides && memory_.may_leave_out(middle, source)) {
      memory_.replaced(middle, source);
      read_instead(node, 0, source);
    }
  }

  void negate(ir::Node& node) {
    const ir::Node* before = producer(tensor_at(node, 0));
    if (before == nullptr || !is_op(*before, "aten::neg")) return;
    if (is_plain(tensor_at(*before, 0))) take(node, 0, tensor_at(*before, 0));
  }

  /// Whether no view on the way leaves a conjugation or a change of sign to be done.
  bool is_plain(ir::ValueId value) const {
    for (const ir::Node* node = producer(value); node != nullptr; node = producer(value)) {
      if (node->kind() != ir::NodeKind::Op || !ops::info(node->op()).is_view) return true;
      if (!ops::offset_in_source(graph_, *node,
                                 static_cast<size_t>(graph_.value(value).result_index())))
        return false;
      value = tensor_at(*node, 0);
    }
    return true;
  }

  ir::Graph& graph_;
  MemoryFacts memory_;
  const TangentUse tangents_;
  PassResult result_;
};

}  // namespace

PassResult remove_round_trips(ir::Graph& graph) { return RoundTripRemover(graph).run(); }

}  // namespace tandem::passes
