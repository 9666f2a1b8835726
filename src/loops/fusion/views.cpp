#include "loops/fusion/views.h"

#include "ops/memory/view_offset.h"
#include "ops/op_table.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <string_view>

namespace tandem::loops {
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

class Reader {
 public:
  Reader(const ir::Graph& graph, const ir::Node& node, int64_t result_index)
      : graph_(graph),
        node_(node),
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
    if (auto offset = picked_offset())
      return ViewStep{.shape = ViewShape::Picked, .offset = *offset};
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

  /// Views that pick some of the elements.
  std::optional<int64_t> picked_offset() const {
    static constexpr std::array kPicking = {
        "aten::diagonal", "aten::select",           "aten::slice", "aten::split",
        "aten::unbind",   "aten::split_with_sizes", "aten::unfold"};
    if (from_->rank() == 0 || std::ranges::find(kPicking, name_) == kPicking.end())
      return std::nullopt;
    return ops::offset_in_source(graph_, node_, static_cast<size_t>(result_));
  }

  int64_t size(int64_t dim) const { return from_->sizes[static_cast<size_t>(dim)].value(); }

  const ir::Graph& graph_;
  const ir::Node& node_;
  int64_t result_;
  const std::string& name_;
  const ir::TensorType* from_;
  const ir::TensorType* to_;
};

std::optional<ViewStep> view_step(const ir::Graph& graph, const ir::Node& node, size_t result) {
  if (node.kind() != ir::NodeKind::Op || node.operands().empty() || !ops::info(node.op()).is_view)
    return std::nullopt;
  return Reader(graph, node, static_cast<int64_t>(result)).step();
}

/// Several elements lie at one place.
bool is_expanded(const ir::Graph& graph, ir::ValueId id) {
  const ir::TypePtr& type = graph.value(id).tensor_type();
  if (type == nullptr) return false;
  for (size_t dim = 0; dim < type->sizes.size(); ++dim) {
    if (type->strides[dim].value() == 0 && type->sizes[dim].value() > 1) return true;
  }
  return false;
}

}  // namespace

Views::Views(const ir::Graph& graph)
    : graph_(graph),
      steps_(graph.value_limit()),
      sources_(graph.value_limit()),
      addresses_(graph.value_limit()),
      loose_(graph.value_limit(), false) {
  auto stands_alone = [&](ir::ValueId id) {
    sources_[static_cast<size_t>(id)] = {id, false};
    addresses_[static_cast<size_t>(id)] = {id, 0};
  };
  for (ir::ValueId input : graph.inputs()) {
    stands_alone(input);
    loose_[static_cast<size_t>(input)] =
        graph.input_role(input).role == ir::Role::Tangent && is_expanded(graph, input);
  }
  graph.for_each_node([&](const ir::Node& node) {
    for (size_t i = 0; i < node.results().size(); ++i) {
      const ir::ValueId id = node.results()[i];
      if (id == ir::kNoValue) continue;
      stands_alone(id);
      auto& step = steps_[static_cast<size_t>(id)];
      step = view_step(graph, node, i);
      if (!step.has_value()) continue;
      const auto from = static_cast<size_t>(source(id));
      if (loose_[from]) {
        loose_[static_cast<size_t>(id)] = is_expanded(graph, id);
        step.reset();
        continue;
      }
      sources_[static_cast<size_t>(id)] = {
          sources_[from].value, sources_[from].picks || step->shape == ViewShape::Picked};
      addresses_[static_cast<size_t>(id)] = {addresses_[from].root,
                                             addresses_[from].offset + step->offset};
    }
  });
}

bool Views::is_folded(const ir::Node& node) const {
  if (node.kind() != ir::NodeKind::Op || node.results().empty()) return false;
  return std::ranges::all_of(
      node.results(), [&](ir::ValueId id) { return id != ir::kNoValue && step(id) != nullptr; });
}

ir::ValueId Views::source(ir::ValueId view) const {
  return *graph_.node(graph_.value(view).producer()).operands()[0].get_if<ir::ValueId>();
}

}  // namespace tandem::loops
