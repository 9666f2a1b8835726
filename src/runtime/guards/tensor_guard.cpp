#include "runtime/guards/tensor_guard.h"

#include "base/error.h"
#include "libtorch/private_members.h"
#include "tandem/ir/type.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

std::string list(at::IntArrayRef values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

bool is_dual(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta && meta->fw_grad_;
}

bool is_inference(c10::DispatchKeySet keys) {
  return !keys.has_any(c10::inplace_or_view_ks) && !keys.has_any(c10::autograd_dispatch_keyset);
}

/// Of two defined tensors that differ in their dispatch keys.
std::string kind_difference(c10::DispatchKeySet now, c10::DispatchKeySet then) {
  const auto text = [](bool first, const char* yes, const char* no) {
    return base::str("is ", first ? yes : no, ", compiled for ", first ? no : yes);
  };
  if (is_inference(now) != is_inference(then))
    return text(is_inference(now), "an inference tensor", "an ordinary tensor");
  for (const auto& [key, name] :
       {std::pair(c10::DispatchKey::Conjugate, "a lazy conjugate (conj())"),
        std::pair(c10::DispatchKey::Negative, "a lazy negation"),
        std::pair(c10::DispatchKey::ZeroTensor, "a tensor of zeros without memory")}) {
    if (now.has(key) != then.has(key)) return text(now.has(key), name, "an ordinary tensor");
  }
  const auto names = [](c10::DispatchKeySet keys) { return c10::toString(keys); };
  return base::str("is a tensor of another kind than it was compiled for: dispatch keys ",
                   names(now - then), " more and ", names(then - now), " less");
}

/// A view that was made without grad of a tensor that requires grad says that it does, too. But no
/// gradient arrives at it.
bool is_without_history(const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_leaf()) return false;
  return !static_cast<const torch::autograd::AutogradMeta*>(
              tensor.unsafeGetTensorImpl()->autograd_meta())
              ->requires_grad_;
}

}  // namespace

TensorGuard::TensorGuard(const at::Tensor& tensor)
    : keys_(tensor.key_set().raw_repr()), defined_(tensor.defined()) {
  if (!defined_) return;
  dtype_ = tensor.dtype();
  device_ = tensor.device();
  rank_ = static_cast<uint32_t>(tensor.dim());
  geometry_.append(tensor.sizes().begin(), tensor.sizes().end());
  geometry_.append(tensor.strides().begin(), tensor.strides().end());
  requires_grad_ = tensor.requires_grad();
  leaf_ = tensor.is_leaf();
  without_history_ = is_without_history(tensor);
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  wrapped_number_ = impl.is_wrapped_number();
  const c10::impl::SizesAndStrides& stored = impl.sizes_and_strides();
  is_stored_ = !without_history_ && libtorch::has_traits(impl) &&
               tensor.sizes().data() == stored.sizes_data() &&
               tensor.strides().data() == stored.strides_data();
  traits_ = libtorch::traits(impl);
}

TensorGuard::TensorGuard(const TensorRow& row) : keys_(row.keys), defined_(row.defined) {
  if (!defined_) return;
  const std::vector<int64_t> sizes = row.type->static_sizes(), strides = row.type->static_strides();
  dtype_ = c10::scalarTypeToTypeMeta(row.type->dtype);
  device_ = row.type->device;
  rank_ = static_cast<uint32_t>(sizes.size());
  geometry_.append(sizes.begin(), sizes.end());
  geometry_.append(strides.begin(), strides.end());
  requires_grad_ = row.requires_grad;
  leaf_ = row.is_leaf;
  without_history_ = row.without_history;
  wrapped_number_ = row.wrapped_number;
  if (!device_.is_cpu() || wrapped_number_ || without_history_) return;
  // The word of traits is libtorch's own: a tensor of this kind has it.
  at::AutoDispatchBelowADInplaceOrView below;
  const TensorGuard like(at::empty_strided(sizes, strides, at::TensorOptions(row.type->dtype)));
  if (like.keys_ != keys_) return;
  is_stored_ = like.is_stored_;
  traits_ = like.traits_;
}

TensorRow TensorGuard::row() const {
  TensorRow row{.defined = defined_, .keys = keys_};
  if (!defined_) return row;
  row.type = std::make_shared<const ir::TensorType>(type());
  row.requires_grad = requires_grad_;
  row.is_leaf = leaf_;
  row.without_history = without_history_;
  row.wrapped_number = wrapped_number_;
  return row;
}

ir::TensorType TensorGuard::type() const {
  ir::TensorType type;
  type.dtype = dtype_.toScalarType();
  type.device = device_;
  type.sizes.assign(sizes().begin(), sizes().end());
  type.strides.assign(strides().begin(), strides().end());
  return type;
}

bool TensorGuard::matches(const at::Tensor& tensor) const {
  return looks_the_same(*tensor.unsafeGetTensorImpl()) || matches_in_detail(tensor);
}

inline bool TensorGuard::looks_the_same(c10::TensorImpl& impl) const {
  // Equal traits mean that the sizes and strides of this one are stored, too.
  const c10::impl::SizesAndStrides& stored = impl.sizes_and_strides();
  const size_t rank = rank_;
  if (!is_stored_ || libtorch::traits(impl) != traits_ || impl.key_set().raw_repr() != keys_ ||
      stored.size() != rank) {
    return false;
  }
  const int64_t* const sizes = stored.sizes_data();
  const int64_t* const strides = stored.strides_data();
  const int64_t* const expected = geometry_.data();
  int64_t differing = 0;
  for (size_t i = 0; i < rank; ++i) {
    differing |= (sizes[i] ^ expected[i]) | (strides[i] ^ expected[rank + i]);
  }
  if (differing != 0) return false;
  const auto* meta =
      static_cast<const torch::autograd::AutogradMeta*>(libtorch::autograd_meta(impl));
  if (!meta) return !requires_grad_;
  return !meta->is_view_ && !meta->fw_grad_ && meta->requires_grad_ == (requires_grad_ && leaf_) &&
         static_cast<bool>(meta->grad_fn_) == (requires_grad_ && !leaf_);
}

bool TensorGuard::matches_in_detail(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // An undefined tensor has no key at all, a defined one at least one.
  if (impl.key_set().raw_repr() != keys_) return false;
  if (!defined_) return true;
  if (impl.dtype() != dtype_ || impl.device() != device_ || impl.sizes() != sizes() ||
      impl.strides() != strides() || impl.is_wrapped_number() != wrapped_number_) {
    return false;
  }
  // Entries know nothing of forward-mode derivatives: a tensor that carries one fits none of them.
  // A write to the base may have given a view a history since, which only the accessors show.
  return !is_dual(tensor) && tensor.requires_grad() == requires_grad_ &&
         (!requires_grad_ ||
          (tensor.is_leaf() == leaf_ && is_without_history(tensor) == without_history_));
}

std::string TensorGuard::difference(const at::Tensor& tensor) const {
  if (tensor.defined() != defined_) {
    return base::str("is ", tensor.defined() ? "defined" : "undefined", ", compiled for ",
                     defined_ ? "a defined" : "an undefined", " tensor");
  }
  const auto differs = [](const char* what, const auto& got, const auto& expected) {
    return base::str(what, " is ", got, ", compiled for ", expected);
  };
  if (tensor.dtype() != dtype_) {
    return differs("dtype", ir::dtype_name(tensor.scalar_type()),
                   ir::dtype_name(dtype_.toScalarType()));
  }
  if (tensor.device() != device_) return differs("device", tensor.device(), device_);
  if (tensor.sizes() != sizes()) return differs("size", list(tensor.sizes()), list(sizes()));
  if (tensor.strides() != strides()) {
    return differs("stride", list(tensor.strides()), list(strides()));
  }
  if (tensor.requires_grad() != requires_grad_) {
    return differs("requires_grad", tensor.requires_grad() ? "true" : "false",
                   requires_grad_ ? "true" : "false");
  }
  if (requires_grad_ && tensor.is_leaf() != leaf_) {
    return base::str("is ",
                     leaf_ ? "no leaf, compiled for a leaf" : "a leaf, compiled for a non-leaf");
  }
  if (requires_grad_ && is_without_history(tensor) != without_history_) {
    constexpr const char* kView = "a view made without grad mode";
    return base::str("is ", without_history_ ? "a leaf" : kView, ", compiled for ",
                     without_history_ ? kView : "a leaf");
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() != wrapped_number_) {
    return base::str("is ", wrapped_number_ ? "a tensor, compiled for a number"
                                            : "a number, compiled for a tensor");
  }
  if (is_dual(tensor)) return "carries a forward-mode derivative";
  return kind_difference(tensor.key_set(), c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys_));
}

size_t TensorGuard::distance(const at::Tensor& tensor) const {
  if (matches(tensor)) return 0;
  constexpr size_t kOtherKind = 8;
  if (!defined_ || !tensor.defined()) return kOtherKind;
  size_t distance = (tensor.device() != device_ ? 4 : 0) + (tensor.dtype() != dtype_ ? 4 : 0);
  if (tensor.dim() != rank_) {
    distance += kOtherKind;
  } else {
    for (size_t i = 0; i < rank_; ++i) distance += tensor.sizes()[i] != sizes()[i] ? 2 : 0;
    if (tensor.sizes() == sizes() && tensor.strides() != strides()) ++distance;
  }
  if (tensor.requires_grad() != requires_grad_) ++distance;
  return std::max<size_t>(distance, 1);
}

bool TensorGuard::differs_in_size(const at::Tensor& tensor) const {
  return defined_ && tensor.defined() && tensor.sizes() != sizes();
}

bool TensorGuard::alike(const TensorGuard& other) const {
  return keys_ == other.keys_ && rank_ == other.rank_ && dtype_ == other.dtype_ &&
         device_ == other.device_ && defined_ == other.defined_ &&
         requires_grad_ == other.requires_grad_ && leaf_ == other.leaf_ &&
         without_history_ == other.without_history_ && wrapped_number_ == other.wrapped_number_;
}

std::string TensorGuard::to_string(const std::string& type_text) const {
  if (!defined_) return "undefined";
  return (type_text.empty() ? ir::to_string(type()) : type_text) +
         (!requires_grad_    ? ""
          : without_history_ ? ", view made without grad mode"
          : leaf_            ? ", leaf that requires grad"
                             : ", requires grad");
}

}  // namespace tandem::runtime
