#include "tensor_text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace tandem::cli {
namespace {

constexpr int64_t kShown = 8;

std::string element_text(const at::Scalar& element) {
  if (element.isComplex()) {
    const auto value = element.toComplexDouble();
    return fmt::format("{:.6g}{:+.6g}i", value.real(), value.imag());
  }
  if (element.isBoolean()) return element.toBool() ? "true" : "false";
  if (element.isIntegral(false)) return std::to_string(element.toLong());
  return fmt::format("{:.6g}", element.toDouble());
}

std::string elements_text(const at::Tensor& tensor) {
  std::string text;
  const at::Tensor flat = tensor.reshape({-1});
  for (int64_t i = 0; i < flat.numel(); ++i) {
    text += (i == 0 ? "" : ", ") + element_text(flat[i].item());
  }
  return "{" + text + "}";
}

}  // namespace

ir::TensorType type_of(const at::Tensor& tensor) {
  ir::TensorType type;
  type.dtype = tensor.scalar_type();
  type.device = tensor.device();
  type.layout = tensor.layout();
  type.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  if (tensor.layout() == c10::Layout::Strided) {
    type.strides.assign(tensor.strides().begin(), tensor.strides().end());
  }
  return type;
}

std::string summary(const at::Tensor& tensor) {
  if (tensor.numel() <= kShown) return elements_text(tensor);
  if (tensor.scalar_type() == at::kBool) {
    return fmt::format("{} of {} true", tensor.sum().item<int64_t>(), tensor.numel());
  }
  // Of a complex tensor the absolute values: they have an order.
  const at::Tensor wide = (tensor.is_complex() ? tensor.abs() : tensor).to(at::kDouble);
  std::string text = fmt::format("mean {:.6g}  min {:.6g}  max {:.6g}", wide.mean().item<double>(),
                                 wide.min().item<double>(), wide.max().item<double>());
  const int64_t odd = wide.numel() - wide.isfinite().sum().item<int64_t>();
  if (odd > 0) text += fmt::format("  not finite {}", odd);
  return text;
}

}  // namespace tandem::cli
