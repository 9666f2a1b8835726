#pragma once

#include "ops/metadata/metadata.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>

namespace tandem::ops {

/// While it lives, calls of this thread reach neither tracer nor functionalization, autograd or
/// autocast.
class KernelsOnly {
 public:
  KernelsOnly();

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

/// A tensor on the Meta device with this metadata; undefined for a null type.
at::Tensor to_meta_tensor(const TensorMeta& meta);
/// A tensor on the true device, without memory: for libtorch functions that choose by device and
/// layout.
at::Tensor to_hollow_tensor(const TensorMeta& meta);
/// Zeros on the true device, with this layout; undefined for a null type.
at::Tensor to_zeros(const TensorMeta& meta);

/// The type of a strided tensor, its device replaced by `device`.
ir::TensorType type_on(const at::Tensor& tensor, c10::Device device);

/// Arguments as metadata. `meta_of` says how to see a tensor.
template <class MetaOf>
MetaArg to_meta_arg(const c10::IValue& value, const c10::TypePtr& schema_type, MetaOf&& meta_of);

bool takes_tensor(const c10::TypePtr& type);       // Tensor, Tensor?
bool takes_tensor_list(const c10::TypePtr& type);  // Tensor[], Tensor?[], Tensor[]?

/// Where the results of a call live: a device argument, the written argument, else the operands'
/// device.
c10::Device result_device(const MetaCall& call);

/// The types of the tensor operands, for messages: `f32[4], none, i64[2]`.
std::string operand_types(const MetaCall& call);

template <class MetaOf>
MetaArg to_meta_arg(const c10::IValue& value, const c10::TypePtr& schema_type, MetaOf&& meta_of) {
  MetaArg arg;
  auto seen = [&](const c10::IValue& element) {
    return element.isTensor() && element.toTensor().defined() ? meta_of(element.toTensor())
                                                              : TensorMeta{};
  };
  if (value.isTensor() || (value.isNone() && takes_tensor(schema_type))) {
    arg.kind = MetaArg::Kind::Tensor;
    arg.tensors.push_back(seen(value));
  } else if (value.isList() && takes_tensor_list(schema_type)) {
    arg.kind = MetaArg::Kind::TensorList;
    for (const c10::IValue& element : value.toListRef()) arg.tensors.push_back(seen(element));
  } else {
    arg.other = value;
  }
  return arg;
}

}  // namespace tandem::ops
