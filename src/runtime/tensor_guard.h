#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace tandem::runtime {

/// Everything about a tensor that the trace could have depended on, but its data and place in
/// memory.
class TensorGuard {
 public:
  explicit TensorGuard(const at::Tensor& tensor);

  bool matches(const at::Tensor& tensor) const;
  /// Of a tensor that does not match: `dtype is f64, expected f32`.
  std::string difference(const at::Tensor& tensor) const;
  /// `f32[4, 4], requires grad`.
  std::string to_string() const;

 private:
  bool defined_ = false;
  uint64_t keys_ = 0;  // backend, layout, conjugate and negative bits, inference tensors
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  at::Device device_ = at::kCPU;
  std::vector<int64_t> sizes_, strides_;
  bool requires_grad_ = false;
  bool leaf_ = true;  // in-place writes to leaves raise
  bool wrapped_number_ = false;
};

}  // namespace tandem::runtime
