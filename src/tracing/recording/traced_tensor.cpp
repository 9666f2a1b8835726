#include "tracing/recording/traced_tensor.h"

#include "libtorch/version.h"
#include "tracing/recording/recording.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace tandem::tracing {
namespace {

c10::DispatchKeySet keys_for(const ops::TensorMeta& meta) {
  c10::DispatchKeySet keys{libtorch::kRecordKey,
                           c10::computeDispatchKey(std::nullopt, std::nullopt, meta.type->device)};
  if (meta.conjugate) keys = keys.add(c10::DispatchKey::Conjugate);
  if (meta.negative) keys = keys.add(c10::DispatchKey::Negative);
  return keys;
}

}  // namespace

TracedTensor::TracedTensor(Recording& recording, ir::ValueId value, const ops::TensorMeta& meta)
    : TracedTensor(recording.id(), value, meta,
                   recording.data_sizes() && recording.data_sizes()->any() ? recording.data_sizes()
                                                                           : nullptr) {}

TracedTensor::TracedTensor(uint64_t recording_id, ir::ValueId value, const ops::TensorMeta& meta,
                           std::shared_ptr<DataSizes> data_sizes)
    : TensorImpl(keys_for(meta), c10::scalarTypeToTypeMeta(meta.type->dtype), meta.type->device),
      meta_(meta),
      value_(value),
      recording_id_(recording_id),
      data_sizes_(std::move(data_sizes)) {
  const ir::TensorType& type = *meta.type;
  sizes_and_strides_.resize(type.sizes.size());
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    sizes_and_strides_.size_at(i) = type.sizes[i].value();
    sizes_and_strides_.stride_at(i) = type.strides[i].value();
  }
  storage_offset_ = meta.offset;
  refresh_numel();
  refresh_contiguous();
  if (meta.wrapped_number) set_wrapped_number(true);
  if (data_sizes_) set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
}

// Each notes its own frame: what lies between it and the user's code are libtorch's ways to ask.

c10::IntArrayRef TracedTensor::sizes_custom() const {
  data_sizes_->note_read(value_, {__builtin_frame_address(0), __builtin_return_address(0)});
  return sizes_default();
}

c10::IntArrayRef TracedTensor::strides_custom() const {
  data_sizes_->note_read(value_, {__builtin_frame_address(0), __builtin_return_address(0)});
  return strides_default();
}

int64_t TracedTensor::numel_custom() const {
  data_sizes_->note_read(value_, {__builtin_frame_address(0), __builtin_return_address(0)});
  return numel_default();
}

c10::SymIntArrayRef TracedTensor::sym_sizes_custom() const {
  if (!data_sizes_->is_asked({__builtin_frame_address(0), __builtin_return_address(0)}))
    return c10::fromIntArrayRefKnownNonNegative(sizes_default());
  if (sizes_for_user_.empty()) {
    for (int64_t size : sizes_default())
      sizes_for_user_.push_back(size_for_user(data_sizes_, value_, size));
  }
  return sizes_for_user_;
}

c10::SymInt TracedTensor::sym_size_custom(int64_t dim) const {
  dim = c10::maybe_wrap_dim(dim, dim_default(), /*wrap_scalar=*/false);
  const int64_t size = sizes_default()[static_cast<size_t>(dim)];
  if (!data_sizes_->is_asked({__builtin_frame_address(0), __builtin_return_address(0)}))
    return size;
  return size_for_user(data_sizes_, value_, size);
}

c10::SymIntArrayRef TracedTensor::sym_strides_custom() const {
  if (!data_sizes_->is_asked({__builtin_frame_address(0), __builtin_return_address(0)}))
    return c10::fromIntArrayRefKnownNonNegative(strides_default());
  if (strides_for_user_.empty()) {
    for (int64_t stride : strides_default())
      strides_for_user_.push_back(size_for_user(data_sizes_, value_, stride));
  }
  return strides_for_user_;
}

c10::SymInt TracedTensor::sym_numel_custom() const {
  if (!data_sizes_->is_asked({__builtin_frame_address(0), __builtin_return_address(0)}))
    return numel_default();
  return size_for_user(data_sizes_, value_, numel_default());
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> TracedTensor::copy(Version&& version_counter,
                                                       bool allow_change) const {
  auto copy = c10::intrusive_ptr<TracedTensor>::reclaim(
      new TracedTensor(recording_id_, value_, meta_, data_sizes_));
  copy->set_version_counter(std::forward<Version>(version_counter));
  copy->set_allow_tensor_metadata_change(allow_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TracedTensor::shallow_copy_and_detach(
    const c10::VariableVersion& version_counter, bool allow_change) const {
  return copy(version_counter, allow_change);
}

c10::intrusive_ptr<c10::TensorImpl> TracedTensor::shallow_copy_and_detach(
    c10::VariableVersion&& version_counter, bool allow_change) const {
  return copy(std::move(version_counter), allow_change);
}

TracedTensor* as_traced(const at::Tensor& tensor) {
  // A functional wrapper copies the keys of what it wraps: the second test tells the two apart.
  if (!tensor.defined() || !tensor.key_set().has(libtorch::kRecordKey) ||
      tensor.key_set().has(c10::DispatchKey::Functionalize)) {
    return nullptr;
  }
  return static_cast<TracedTensor*>(tensor.unsafeGetTensorImpl());
}

bool is_traced(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(libtorch::kRecordKey);
}

ir::ValueId current_value(const at::Tensor& tensor) {
  if (TracedTensor* traced = as_traced(tensor)) return traced->value();
  if (!at::functionalization::impl::isFunctionalTensor(tensor)) return ir::kNoValue;
  // Outside an op, sync would walk through autograd of the traced tensor.
  at::AutoDispatchBelowADInplaceOrView below;
  at::functionalization::impl::sync(tensor);
  TracedTensor* traced = as_traced(at::functionalization::impl::from_functional_tensor(tensor));
  return traced ? traced->value() : ir::kNoValue;
}

}  // namespace tandem::tracing
