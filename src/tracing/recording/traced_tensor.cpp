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
    : TracedTensor(recording.id(), value, meta) {}

TracedTensor::TracedTensor(uint64_t recording_id, ir::ValueId value, const ops::TensorMeta& meta)
    : TensorImpl(keys_for(meta), c10::scalarTypeToTypeMeta(meta.type->dtype), meta.type->device),
      meta_(meta),
      value_(value),
      recording_id_(recording_id) {
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
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> TracedTensor::copy(Version&& version_counter,
                                                       bool allow_change) const {
  auto copy =
      c10::intrusive_ptr<TracedTensor>::reclaim(new TracedTensor(recording_id_, value_, meta_));
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
