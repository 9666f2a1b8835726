#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

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
  bool autograd_matches(const at::Tensor& tensor) const;
  at::IntArrayRef sizes() const { return {geometry_.data(), rank_}; }
  at::IntArrayRef strides() const { return {geometry_.data() + rank_, rank_}; }

  // Backend, layout, conjugate and negative bits, inference tensors; empty of an undefined tensor.
  uint64_t keys_ = 0;
  caffe2::TypeMeta dtype_;
  at::Device device_ = at::kCPU;
  bool defined_ = false;
  bool requires_grad_ = false;
  bool leaf_ = true;  // in-place writes to leaves raise
  bool wrapped_number_ = false;
  size_t rank_ = 0;
  c10::SmallVector<int64_t, 8> geometry_;  // sizes, then strides
};

inline bool TensorGuard::matches(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // An undefined tensor has no key at all, a defined one at least one.
  if (impl.key_set().raw_repr() != keys_) return false;
  if (!defined_) return true;
  const at::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
  if (impl.dtype() != dtype_ || sizes.size() != rank_) return false;
  int64_t differing = impl.is_wrapped_number() != wrapped_number_;
  for (size_t i = 0; i < rank_; ++i) {
    differing |= (sizes[i] ^ geometry_[i]) | (strides[i] ^ geometry_[rank_ + i]);
  }
  return differing == 0 && impl.device() == device_ && autograd_matches(tensor);
}

inline bool TensorGuard::autograd_matches(const at::Tensor& tensor) const {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(
      tensor.unsafeGetTensorImpl()->autograd_meta());
  if (!meta) return !requires_grad_;
  // Entries know nothing of forward-mode derivatives: a tensor that carries one fits none of them.
  if (meta->fw_grad_) return false;
  if (meta->is_view_) {
    // A write to its base may have given the view a history since; only the accessors look there.
    return tensor.requires_grad() == requires_grad_ &&
           (!requires_grad_ || tensor.is_leaf() == leaf_);
  }
  const bool has_history = static_cast<bool>(meta->grad_fn_);
  return requires_grad_ ? (leaf_ ? meta->requires_grad_ && !has_history : has_history)
                        : !meta->requires_grad_ && !has_history;
}

}  // namespace tandem::runtime
