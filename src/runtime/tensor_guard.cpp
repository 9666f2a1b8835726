#include "runtime/tensor_guard.h"

#include "base/error.h"
#include "tandem/ir/type.h"

#include <torch/csrc/autograd/variable.h>

namespace tandem::runtime {
namespace {

std::string list(at::IntArrayRef values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

/// Entries know nothing of forward-mode derivatives: a tensor that carries one fits none of them.
bool is_dual(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta && meta->fw_grad_;
}

}  // namespace

TensorGuard::TensorGuard(const at::Tensor& tensor) : defined_(tensor.defined()) {
  if (!defined_) return;
  keys_ = tensor.key_set().raw_repr();
  dtype_ = tensor.scalar_type();
  device_ = tensor.device();
  sizes_ = tensor.sizes().vec();
  strides_ = tensor.strides().vec();
  requires_grad_ = tensor.requires_grad();
  leaf_ = tensor.is_leaf();
  wrapped_number_ = tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

bool TensorGuard::matches(const at::Tensor& tensor) const {
  if (tensor.defined() != defined_) return false;
  if (!defined_) return true;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.key_set().raw_repr() == keys_ && tensor.scalar_type() == dtype_ &&
         impl.device() == device_ && impl.sizes() == at::IntArrayRef(sizes_) &&
         impl.strides() == at::IntArrayRef(strides_) && tensor.requires_grad() == requires_grad_ &&
         (!requires_grad_ || tensor.is_leaf() == leaf_) &&
         impl.is_wrapped_number() == wrapped_number_ && !is_dual(tensor);
}

std::string TensorGuard::difference(const at::Tensor& tensor) const {
  if (tensor.defined() != defined_) {
    return base::str("is ", tensor.defined() ? "defined" : "undefined", ", compiled for ",
                     defined_ ? "a defined" : "an undefined", " tensor");
  }
  const auto differs = [](const char* what, const auto& got, const auto& expected) {
    return base::str(what, " is ", got, ", compiled for ", expected);
  };
  if (tensor.scalar_type() != dtype_) {
    return differs("dtype", ir::dtype_name(tensor.scalar_type()), ir::dtype_name(dtype_));
  }
  if (tensor.device() != device_) return differs("device", tensor.device(), device_);
  if (tensor.sizes() != at::IntArrayRef(sizes_))
    return differs("size", list(tensor.sizes()), list(sizes_));
  if (tensor.strides() != at::IntArrayRef(strides_)) {
    return differs("stride", list(tensor.strides()), list(strides_));
  }
  if (tensor.requires_grad() != requires_grad_) {
    return differs("requires_grad", tensor.requires_grad() ? "true" : "false",
                   requires_grad_ ? "true" : "false");
  }
  if (requires_grad_ && tensor.is_leaf() != leaf_) {
    return base::str("is ",
                     leaf_ ? "no leaf, compiled for a leaf" : "a leaf, compiled for a non-leaf");
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() != wrapped_number_) {
    return base::str("is ", wrapped_number_ ? "a tensor, compiled for a number"
                                            : "a number, compiled for a tensor");
  }
  if (is_dual(tensor)) return "carries a forward-mode derivative";
  return base::str("kind of tensor (dispatch keys) is ", c10::toString(tensor.key_set()),
                   ", compiled for ",
                   c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys_)));
}

std::string TensorGuard::to_string() const {
  if (!defined_) return "undefined";
  ir::TensorType type;
  type.dtype = dtype_;
  type.device = device_;
  type.sizes.assign(sizes_.begin(), sizes_.end());
  type.strides.assign(strides_.begin(), strides_.end());
  return ir::to_string(type) + (!requires_grad_ ? ""
                                : leaf_         ? ", leaf that requires grad"
                                                : ", requires grad");
}

}  // namespace tandem::runtime
