#include "passes/facts/fill_value.h"

#include "ops/memory/view_offset.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace tandem::passes {
namespace {

constexpr int kMostViews = 8;
constexpr int64_t kMostElements = 64;  // of a constant that is read element by element

/// Which operand is the number; -1 and -2: it is one or zero.
constexpr int kOne = -1, kZero = -2;
struct FillRow {
  std::string_view name;
  int operand;
};
constexpr std::array kFills = {
    FillRow{"aten::full", 1},          FillRow{"aten::full_like", 1},
    FillRow{"aten::new_full", 2},      FillRow{"aten::new_ones", kOne},
    FillRow{"aten::new_zeros", kZero}, FillRow{"aten::ones", kOne},
    FillRow{"aten::ones_like", kOne},  FillRow{"aten::scalar_tensor", 0},
    FillRow{"aten::zeros", kZero},     FillRow{"aten::zeros_like", kZero},
};

const FillRow* fill_row(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op || !node.op().operator_name().overload_name.empty())
    return nullptr;
  const auto* row =
      std::ranges::find(kFills, std::string_view(node.op().operator_name().name), &FillRow::name);
  return row == kFills.end() ? nullptr : row;
}

/// The number as the dtype has it: `full([2], 0.1)` of f32 holds another number than 0.1.
std::optional<c10::Scalar> as_dtype(const c10::Scalar& number, c10::ScalarType dtype) {
  if (c10::isComplexType(dtype)) return std::nullopt;
  const at::Tensor one = at::scalar_tensor(number, at::dtype(dtype));
  return one.item();
}

std::optional<c10::Scalar> constant_value(const at::Tensor& constant) {
  if (!constant.device().is_cpu() || constant.layout() != c10::kStrided ||
      !constant.is_contiguous() || constant.numel() == 0 || constant.numel() > kMostElements ||
      c10::isComplexType(constant.scalar_type())) {
    return std::nullopt;
  }
  const auto* bytes = static_cast<const char*>(constant.const_data_ptr());
  const size_t width = constant.element_size();
  for (int64_t i = 1; i < constant.numel(); ++i) {
    if (std::memcmp(bytes, bytes + static_cast<size_t>(i) * width, width) != 0) return std::nullopt;
  }
  return constant.flatten()[0].item();
}

}  // namespace

std::optional<c10::Scalar> number_in(const ir::Operand& operand) {
  if (const auto* number = operand.get_if<double>()) return c10::Scalar(*number);
  if (const auto* number = operand.get_if<bool>()) return c10::Scalar(*number);
  if (const auto* size = operand.get_if<ir::Size>()) {
    if (const auto number = size->maybe_value()) return c10::Scalar(*number);
  }
  return std::nullopt;
}

bool is_fill(const ir::Node& node) { return fill_row(node) != nullptr; }

std::optional<c10::Scalar> fill_value(const ir::Graph& graph, ir::ValueId value) {
  for (int step = 0; step < kMostViews; ++step) {
    const ir::Value& here = graph.value(value);
    if (here.is_input() || here.tensor_type() == nullptr) return std::nullopt;
    const ir::Node& node = graph.node(here.producer());
    if (node.kind() == ir::NodeKind::Constant) return constant_value(node.constant());
    if (const FillRow* row = fill_row(node)) {
      std::optional<c10::Scalar> number;
      if (row->operand >= 0) {
        number = number_in(node.operands()[static_cast<size_t>(row->operand)]);
      } else {
        number = c10::Scalar(row->operand == kOne ? 1 : 0);
      }
      return number ? as_dtype(*number, here.tensor_type()->dtype) : std::nullopt;
    }
    if (!ops::offset_in_source(graph, node, static_cast<size_t>(here.result_index())))
      return std::nullopt;
    value = *node.operands()[0].get_if<ir::ValueId>();
  }
  return std::nullopt;
}

}  // namespace tandem::passes
