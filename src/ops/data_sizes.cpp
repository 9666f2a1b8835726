#include "ops/data_sizes.h"

#include "ops/op_table.h"
#include "ops/rules/rules.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <iterator>

namespace tandem::ops {
namespace {

using rules::Args;
using rules::contiguous;
using rules::ScalarType;
using rules::TensorType;

constexpr std::string_view kTrueElements = "how many elements are not zero";

int64_t elements_of(const TensorType& type) {
  int64_t elements = 1;
  for (int64_t size : type.static_sizes()) elements *= size;
  return elements;
}

// ---- nonzero ----

std::optional<DataSize> size_of_nonzero(const Args& args) {
  return DataSize{.max = elements_of(*args.tensor("self")), .what = kTrueElements};
}

/// Column by column, as libtorch's kernel leaves it.
std::vector<MetaResult> nonzero(const Args& args, int64_t size) {
  TensorType type =
      contiguous(*args.tensor("self"), {size, args.tensor("self")->rank()}, ScalarType::Long);
  type.strides = {1, std::max<int64_t>(size, 1)};
  return *rules::answer(std::move(type));
}

// ---- masked_select ----

std::vector<int64_t> broadcast(const Args& args) {
  return at::infer_size(args.tensor("self")->static_sizes(), args.tensor("mask")->static_sizes());
}

std::optional<DataSize> size_of_masked_select(const Args& args) {
  const TensorType& mask = *args.tensor("mask");
  TORCH_CHECK(mask.dtype == ScalarType::Bool, "masked_select: expected BoolTensor for mask");
  const std::vector<int64_t> sizes = broadcast(args);
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  DataSize size{.max = elements, .decided_by = 1};
  if (mask.static_sizes() == sizes) size.what = kTrueElements;
  return size;
}

std::vector<MetaResult> masked_select(const Args& args, int64_t size) {
  return *rules::answer(contiguous(*args.tensor("self"), {size}));
}

// ---- unique ----

std::optional<DataSize> size_of_unique(const Args& args) {
  const int64_t elements = elements_of(*args.tensor("self"));
  return DataSize{.min = std::min<int64_t>(elements, 1), .max = elements};
}

/// Values, the place of each element among them, and how often each occurs.
std::vector<MetaResult> unique(const Args& args, int64_t size) {
  const TensorType& self = *args.tensor("self");
  const bool inverse = args.flag("return_inverse"), counts = args.flag("return_counts");
  rules::Sizes places{0};
  if (inverse) places = self.sizes;
  return *rules::answer(contiguous(self, {size}), contiguous(self, places, ScalarType::Long),
                        contiguous(self, {counts ? size : 0}, ScalarType::Long));
}

// ---- repeat_interleave, bincount ----

std::optional<DataSize> size_of_repeats(const Args& args) {
  if (!args.none("output_size")) return std::nullopt;
  const TensorType& repeats = *args.tensor("repeats");
  if (repeats.rank() != 1) return std::nullopt;
  if (elements_of(repeats) == 0) return DataSize{.max = 0};
  return DataSize{};
}

std::vector<MetaResult> repeat_interleave(const Args& args, int64_t size) {
  return *rules::answer(contiguous(*args.tensor("repeats"), {size}));
}

std::optional<DataSize> size_of_bincount(const Args& args) {
  const int64_t least = args.integer("minlength");
  if (least < 0 || args.tensor("self")->rank() != 1) return std::nullopt;
  if (elements_of(*args.tensor("self")) == 0) return DataSize{.min = least, .max = least};
  return DataSize{.min = std::max<int64_t>(least, 1)};
}

std::vector<MetaResult> bincount(const Args& args, int64_t size) {
  const TensorType& self = *args.tensor("self");
  const TensorType* weights = args.tensor("weights");
  ScalarType dtype = ScalarType::Long;
  if (weights != nullptr && elements_of(self) > 0)
    dtype = weights->dtype == ScalarType::Float ? ScalarType::Float : ScalarType::Double;
  return *rules::answer(contiguous(self, {size}, dtype));
}

// ---- a number that host code reads and hands on ----

std::optional<DataSize> size_of_number(const Args&) { return DataSize{.what = "the number"}; }

std::vector<MetaResult> as_size(const Args& args, int64_t size) {
  return *rules::answer(contiguous(*args.tensor("number"), {size, 0}, ScalarType::Byte));
}

struct Maker {
  std::string_view op;
  std::optional<DataSize> (*size)(const Args&);
  std::vector<MetaResult> (*results)(const Args&, int64_t);
};

constexpr Maker kMakers[] = {
    {"aten::nonzero", size_of_nonzero, nonzero},
    {"aten::masked_select", size_of_masked_select, masked_select},
    {"aten::_unique2", size_of_unique, unique},
    {"aten::repeat_interleave.Tensor", size_of_repeats, repeat_interleave},
    {"aten::bincount", size_of_bincount, bincount},
    {"tandem::as_size", size_of_number, as_size},
};

const Maker* find_row_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  for (const Maker& row : kMakers) {
    const size_t length = name.name.size();
    if (!row.op.starts_with(name.name)) continue;
    if (row.op.size() == length
            ? name.overload_name.empty()
            : row.op[length] == '.' && row.op.substr(length + 1) == name.overload_name) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

bool may_size_by_data(const c10::OperatorHandle& op) {
  return (info(op).data_dependent_shape || op.operator_name().name == "aten::repeat_interleave") &&
         find_row_of(op) != nullptr;
}

std::optional<DataSize> data_size(const MetaCall& call) {
  return find_row_of(call.op)->size(Args(call));
}

std::vector<MetaResult> results_of_size(const MetaCall& call, int64_t size) {
  return find_row_of(call.op)->results(Args(call), size);
}

bool makes_size(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  if (info(node.op()).data_dependent_shape) return true;
  if (node.op().operator_name().name != "aten::repeat_interleave") return false;
  const auto at = node.op().schema().argumentIndexWithName("output_size");
  return node.op().operator_name().overload_name == "Tensor" && at.has_value() &&
         node.operands()[static_cast<size_t>(*at)].is_none();
}

}  // namespace tandem::ops
