#include "ops/memory/view_offset.h"

#include "ops/op_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tandem::ops {
namespace {

using Offset = std::optional<int64_t>;

/// Operand 0, which every view has.
struct Source {
  std::vector<int64_t> sizes, strides;
  int64_t dim(int64_t given) const {
    return given < 0 ? given + static_cast<int64_t>(sizes.size()) : given;
  }
  int64_t size(int64_t dim) const { return sizes[static_cast<size_t>(dim)]; }
  int64_t stride(int64_t dim) const { return strides[static_cast<size_t>(dim)]; }
};

Offset integer(const ir::Node& node, size_t operand) {
  const auto* size = node.operands()[operand].get_if<ir::Size>();
  return size == nullptr ? Offset{} : size->maybe_value();
}

Offset at_start(const Source&, const ir::Node&, size_t) { return 0; }

// select.int(self, dim, index)
Offset select(const Source& source, const ir::Node& node, size_t) {
  const Offset dim = integer(node, 1), index = integer(node, 2);
  if (!dim || !index) return {};
  const int64_t d = source.dim(*dim);
  return (*index < 0 ? *index + source.size(d) : *index) * source.stride(d);
}

// slice.Tensor(self, dim, start, end, step)
Offset slice(const Source& source, const ir::Node& node, size_t) {
  const Offset dim = integer(node, 1);
  if (!dim) return {};
  const int64_t d = source.dim(*dim);
  int64_t start = 0;
  if (!node.operands()[2].is_none()) {
    const Offset given = integer(node, 2);
    if (!given) return {};
    start = std::clamp<int64_t>(*given < 0 ? *given + source.size(d) : *given, 0, source.size(d));
  }
  return start * source.stride(d);
}

// split.Tensor(self, split_size, dim)
Offset split(const Source& source, const ir::Node& node, size_t index) {
  const Offset size = integer(node, 1), dim = integer(node, 2);
  if (!size || !dim) return {};
  return static_cast<int64_t>(index) * *size * source.stride(source.dim(*dim));
}

// split_with_sizes(self, split_sizes, dim)
Offset split_with_sizes(const Source& source, const ir::Node& node, size_t index) {
  const auto* sizes = node.operands()[1].get_if<ir::Operand::Sizes>();
  const Offset dim = integer(node, 2);
  if (sizes == nullptr || !dim) return {};
  int64_t before = 0;
  for (size_t i = 0; i < index; ++i) {
    const Offset size = (*sizes)[i].maybe_value();
    if (!size) return {};
    before += *size;
  }
  return before * source.stride(source.dim(*dim));
}

// unbind.int(self, dim)
Offset unbind(const Source& source, const ir::Node& node, size_t index) {
  const Offset dim = integer(node, 1);
  if (!dim) return {};
  return static_cast<int64_t>(index) * source.stride(source.dim(*dim));
}

// diagonal(self, offset, dim1, dim2)
Offset diagonal(const Source& source, const ir::Node& node, size_t) {
  const Offset offset = integer(node, 1), first = integer(node, 2), second = integer(node, 3);
  if (!offset || !first || !second) return {};
  const int64_t along = source.dim(*offset >= 0 ? *second : *first);
  return std::abs(*offset) * source.stride(along);
}

struct Row {
  std::string_view name, overload;
  Offset (*offset)(const Source&, const ir::Node&, size_t);
};

// Sorted by name. What is missing here starts somewhere else, or shows other elements than memory
// has: as_strided, view.dtype, _conj, _neg_view, view_as_real.
constexpr std::array kRows = {
    Row{"aten::_reshape_alias", "", at_start},
    Row{"aten::_unsafe_view", "", at_start},
    Row{"aten::alias", "", at_start},
    Row{"aten::detach", "", at_start},
    Row{"aten::diagonal", "", diagonal},
    Row{"aten::expand", "", at_start},
    Row{"aten::lift_fresh", "", at_start},
    Row{"aten::permute", "", at_start},
    Row{"aten::select", "int", select},
    Row{"aten::slice", "Tensor", slice},
    Row{"aten::split", "Tensor", split},
    Row{"aten::split", "sizes", split_with_sizes},
    Row{"aten::split_with_sizes", "", split_with_sizes},
    Row{"aten::squeeze", "", at_start},
    Row{"aten::squeeze", "dim", at_start},
    Row{"aten::squeeze", "dims", at_start},
    Row{"aten::t", "", at_start},
    Row{"aten::transpose", "int", at_start},
    Row{"aten::unbind", "int", unbind},
    Row{"aten::unfold", "", at_start},
    Row{"aten::unsqueeze", "", at_start},
    Row{"aten::view", "", at_start},
};

const Row* find_row(const c10::OperatorName& op) {
  const auto* row = std::ranges::lower_bound(kRows, std::string_view(op.name), {}, &Row::name);
  for (; row != kRows.end() && row->name == op.name; ++row) {
    if (row->overload == op.overload_name) return row;
  }
  return nullptr;
}

}  // namespace

std::optional<int64_t> offset_in_source(const ir::Graph& graph, const ir::Node& node,
                                        size_t index) {
  if (node.kind() != ir::NodeKind::Op) return {};
  const ops::OpInfo& info = ops::info(node.op());
  if (!info.is_view || info.marked) return {};
  const Row* row = find_row(node.op().operator_name());
  if (row == nullptr) return {};
  const auto* id = node.operands()[0].get_if<ir::ValueId>();
  if (id == nullptr || *id == ir::kNoValue || node.results()[index] == ir::kNoValue) return {};
  const ir::TypePtr& type = graph.value(*id).tensor_type();
  if (type == nullptr || type->layout != c10::kStrided || !type->is_static()) return {};
  if (row->offset == at_start) return 0;
  return row->offset({type->static_sizes(), type->static_strides()}, node, index);
}

}  // namespace tandem::ops
