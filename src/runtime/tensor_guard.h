#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <string>

namespace tandem::runtime {

/// Everything about a tensor that the trace could have depended on, but its data and place in
/// memory. `matches` is on the path of every call, once per argument and parameter: it reads the
/// fields in place, and what differs is worked out afterwards.
class TensorGuard {
 public:
  explicit TensorGuard(const at::Tensor& tensor);

  bool matches(const at::Tensor& tensor) const;
  /// Of a tensor that does not match: `dtype is f64, expected f32`.
  std::string difference(const at::Tensor& tensor) const;
  /// `f32[4, 4], requires grad`.
  std::string to_string() const;

 private:
  at::IntArrayRef sizes() const { return {geometry_.data(), rank_}; }
  at::IntArrayRef strides() const { return {geometry_.data() + rank_, rank_}; }

  // Backend, layout, conjugate and negative bits, inference tensors; empty of an undefined tensor.
  uint64_t keys_ = 0;
  caffe2::TypeMeta dtype_;
  at::Device device_ = at::kCPU;
  bool on_cpu_ = true;
  bool defined_ = false;
  bool requires_grad_ = false;
  bool leaf_ = true;  // in-place writes to leaves raise
  bool wrapped_number_ = false;
  size_t rank_ = 0;
  c10::SmallVector<int64_t, 8> geometry_;  // sizes, then strides
};

}  // namespace tandem::runtime
