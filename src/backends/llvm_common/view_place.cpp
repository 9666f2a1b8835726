#include "backends/llvm_common/view_place.h"

#include "ops/op_table.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>

namespace tandem::backends::llvm_common {
namespace {

const ir::TensorType* operand_type(const ir::Graph& graph, const ir::Node& node, size_t index) {
  const auto* id = node.operands()[index].get_if<ir::ValueId>();
  return id == nullptr || *id == ir::kNoValue ? nullptr : graph.value(*id).tensor_type().get();
}

std::optional<int64_t> integer(const ir::Node& node, size_t index) {
  const auto* size = node.operands()[index].get_if<ir::Size>();
  return size == nullptr ? std::nullopt : size->maybe_value();
}

int64_t wrapped(int64_t dim, int64_t rank) { return dim < 0 ? dim + rank : dim; }

/// The sizes of a list operand before one place of it.
int64_t sum_before(const std::vector<ir::Size>& sizes, int64_t place) {
  int64_t sum = 0;
  for (int64_t i = 0; i < place; ++i) sum += sizes[static_cast<size_t>(i)].value();
  return sum;
}

class Reader {
 public:
  Reader(const ir::Graph& graph, const ir::Node& node, int64_t result_index)
      : node_(node),
        result_(result_index),
        name_(node.op().operator_name().name),
        from_(operand_type(graph, node, 0)),
        to_(graph.value(node.results()[static_cast<size_t>(result_index)]).tensor_type().get()) {}

  std::optional<ViewStep> step() const {
    if (from_ == nullptr || to_ == nullptr || !from_->is_static() || !to_->is_static() ||
        from_->dtype != to_->dtype || from_->layout != c10::kStrided)
      return std::nullopt;
    if (name_ == "aten::view" || name_ == "aten::_unsafe_view" || name_ == "aten::_reshape_alias")
      return ViewStep{.shape = ViewShape::Reshaped};
    if (name_ == "aten::detach" || name_ == "aten::alias" || name_ == "aten::lift_fresh")
      return ViewStep{.shape = ViewShape::Reshaped};
    if (name_ == "aten::expand") return ViewStep{.shape = ViewShape::Expanded};
    if (auto order = permutation()) return ViewStep{.shape = ViewShape::Permuted, .order = *order};
    if (auto offset = cut_offset()) return ViewStep{.shape = ViewShape::Cut, .offset = *offset};
    return std::nullopt;
  }

 private:
  std::optional<std::vector<int64_t>> permutation() const {
    const int64_t rank = from_->rank();
    std::vector<int64_t> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    if (name_ == "aten::t") {
      if (rank == 2) std::swap(order[0], order[1]);
      return order;
    }
    if (name_ == "aten::transpose") {
      if (rank == 0) return order;
      std::swap(order[static_cast<size_t>(wrapped(*integer(node_, 1), rank))],
                order[static_cast<size_t>(wrapped(*integer(node_, 2), rank))]);
      return order;
    }
    if (name_ == "aten::permute") {
      const auto* dims = node_.operands()[1].get_if<ir::Operand::Sizes>();
      if (dims == nullptr) return std::nullopt;
      for (size_t i = 0; i < dims->size(); ++i) order[i] = wrapped((*dims)[i].value(), rank);
      return order;
    }
    if (name_ == "aten::unsqueeze") {
      order.insert(order.begin() + wrapped(*integer(node_, 1), rank + 1), -1);
      return order;
    }
    if (name_ == "aten::squeeze") {
      if (node_.op().operator_name().overload_name.empty()) {
        std::erase_if(order, [&](int64_t d) { return size(d) == 1; });
        return order;
      }
      std::vector<int64_t> dims;
      if (auto one = integer(node_, 1)) dims = {*one};
      if (const auto* list = node_.operands()[1].get_if<ir::Operand::Sizes>()) {
        for (const ir::Size& d : *list) dims.push_back(d.value());
      }
      std::erase_if(order, [&](int64_t d) {
        return size(d) == 1 && std::ranges::any_of(dims, [&](int64_t dim) {
                 return wrapped(dim, std::max<int64_t>(rank, 1)) == d;
               });
      });
      return order;
    }
    return std::nullopt;
  }

  std::optional<int64_t> cut_offset() const {
    const int64_t rank = from_->rank();
    if (rank == 0) return std::nullopt;
    if (name_ == "aten::slice") {
      const auto dim = integer(node_, 1), start = integer(node_, 2);
      if (!dim.has_value() || (!start.has_value() && !node_.operands()[2].is_none()))
        return std::nullopt;
      const int64_t length = size(wrapped(*dim, rank));
      int64_t first = start.value_or(0);
      if (first < 0) first += length;
      first = std::clamp<int64_t>(first, 0, length);
      return first * stride(wrapped(*dim, rank));
    }
    if (name_ == "aten::select") {
      const auto dim = integer(node_, 1), index = integer(node_, 2);
      if (!dim.has_value() || !index.has_value()) return std::nullopt;
      return wrapped(*index, size(wrapped(*dim, rank))) * stride(wrapped(*dim, rank));
    }
    if (name_ == "aten::unbind") return result_ * stride(wrapped(*integer(node_, 1), rank));
    if (name_ == "aten::split" && node_.op().operator_name().overload_name == "Tensor") {
      const auto each = integer(node_, 1);
      if (!each.has_value()) return std::nullopt;
      return result_ * *each * stride(wrapped(*integer(node_, 2), rank));
    }
    if (name_ == "aten::split_with_sizes" || name_ == "aten::split") {
      const auto* sizes = node_.operands()[1].get_if<ir::Operand::Sizes>();
      if (sizes == nullptr) return std::nullopt;
      return sum_before(*sizes, result_) * stride(wrapped(*integer(node_, 2), rank));
    }
    if (name_ == "aten::unfold") return 0;
    if (name_ == "aten::diagonal") {
      const auto offset = integer(node_, 1), first = integer(node_, 2), second = integer(node_, 3);
      if (!offset.has_value() || !first.has_value() || !second.has_value()) return std::nullopt;
      return *offset >= 0 ? *offset * stride(wrapped(*second, rank))
                          : -*offset * stride(wrapped(*first, rank));
    }
    return std::nullopt;
  }

  int64_t size(int64_t dim) const { return from_->sizes[static_cast<size_t>(dim)].value(); }
  int64_t stride(int64_t dim) const { return from_->strides[static_cast<size_t>(dim)].value(); }

  const ir::Node& node_;
  int64_t result_;
  const std::string& name_;
  const ir::TensorType* from_;
  const ir::TensorType* to_;
};

}  // namespace

std::optional<ViewStep> view_step(const ir::Graph& graph, const ir::Node& node,
                                  int64_t result_index) {
  if (node.kind() != ir::NodeKind::Op || node.operands().empty() || !ops::info(node.op()).is_view)
    return std::nullopt;
  return Reader(graph, node, result_index).step();
}

std::vector<Place> places(const ir::Graph& graph) {
  std::vector<Place> out(graph.value_limit());
  for (ir::ValueId input : graph.inputs()) out[static_cast<size_t>(input)] = {input, 0};
  graph.for_each_node([&](const ir::Node& node) {
    for (size_t i = 0; i < node.results().size(); ++i) {
      const ir::ValueId id = node.results()[i];
      if (id == ir::kNoValue) continue;
      out[static_cast<size_t>(id)] = {id, 0};
      const auto step = view_step(graph, node, static_cast<int64_t>(i));
      if (!step.has_value()) continue;
      const Place& base = out[static_cast<size_t>(*node.operands()[0].get_if<ir::ValueId>())];
      out[static_cast<size_t>(id)] = {base.root, base.offset + step->offset};
    }
  });
  return out;
}

}  // namespace tandem::backends::llvm_common
