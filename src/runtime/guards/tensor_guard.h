#pragma once

#include "runtime/guards/guard_rows.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <string>

namespace tandem::runtime {

/// Everything about a tensor that the trace could have depended on, but its data and place in
/// memory. `matches` is on the path of every call, once per argument and parameter: it compares
/// what lies side by side in the tensor at once, and what differs is worked out afterwards.
class TensorGuard {
 public:
  explicit TensorGuard(const at::Tensor& tensor);
  explicit TensorGuard(const TensorRow& row);
  TensorRow row() const;

  bool matches(const at::Tensor& tensor) const;
  /// Of a tensor that does not match: `dtype is f64, expected f32`.
  std::string difference(const at::Tensor& tensor) const;
  /// How much is different: zero for a match, more for a dtype or rank than for a size.
  size_t distance(const at::Tensor& tensor) const;
  /// Both are tensors, of other sizes.
  bool differs_in_size(const at::Tensor& tensor) const;
  /// Equal but for sizes and strides.
  bool alike(const TensorGuard& other) const;
  bool defined() const { return defined_; }
  at::IntArrayRef sizes() const { return {geometry_.data(), rank_}; }
  at::IntArrayRef strides() const { return {geometry_.data() + rank_, rank_}; }
  /// Of a defined tensor.
  ir::TensorType type() const;
  /// `f32[4, 4], requires grad`; with another text for the type if there is one.
  std::string to_string(const std::string& type_text = {}) const;

 private:
  /// Sufficient for a match, not necessary.
  bool looks_the_same(c10::TensorImpl& impl) const;
  bool matches_in_detail(const at::Tensor& tensor) const;

  // Backend, layout, conjugate and negative bits, inference tensors; empty of an undefined tensor.
  uint64_t keys_ = 0;
  uint64_t traits_ = 0;  // dtype, device, flags
  uint32_t rank_ = 0;
  caffe2::TypeMeta dtype_;
  at::Device device_ = at::kCPU;
  bool defined_ = false;
  bool is_stored_ = false;  // sizes and strides lie in the tensor: no accessor computes them
  bool requires_grad_ = false;
  bool leaf_ = true;              // in-place writes to leaves raise
  bool without_history_ = false;  // a view made without grad, which says that it requires grad
  bool wrapped_number_ = false;
  c10::SmallVector<int64_t, 4> geometry_;  // sizes, then strides
};

}  // namespace tandem::runtime
