#include "ops/metadata/meta_tensor.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "shapes/reach.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/zeros.h>

namespace tandem::ops {
namespace {

// Meta storages hold nothing. One far larger than the tensor keeps as_strided over the rest of the
// real storage legal, whose size metadata does not tell.
constexpr size_t kMetaStorageBytes = size_t{1} << 50;

c10::DispatchKeySet tracing_keys() {
  return c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
         c10::DispatchKeySet{libtorch::kRecordKey, c10::DispatchKey::Functionalize,
                             libtorch::kLiftKey};
}

void set_flags(const at::Tensor& tensor, const TensorMeta& meta) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (meta.wrapped_number) impl->set_wrapped_number(true);
  if (meta.conjugate) impl->_set_conj(true);
  if (meta.negative) impl->_set_neg(true);
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

}  // namespace

KernelsOnly::KernelsOnly() : exclude_(tracing_keys()) {}

at::Tensor to_meta_tensor(const TensorMeta& meta) {
  if (!meta.type) return {};
  at::Tensor tensor(at::detail::empty_strided_meta(meta.type->static_sizes(),
                                                   meta.type->static_strides(), meta.type->dtype));
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(kMetaStorageBytes);
  tensor.unsafeGetTensorImpl()->set_storage_offset(meta.offset);
  set_flags(tensor, meta);
  return tensor;
}

at::Tensor to_hollow_tensor(const TensorMeta& meta) {
  if (!meta.type) return {};
  c10::Device device = meta.type->device;
  c10::Storage storage(c10::Storage::use_byte_size_t(), kMetaStorageBytes,
                       c10::DataPtr(nullptr, device),
                       /*allocator=*/nullptr, /*resizable=*/false);
  c10::DispatchKey key = c10::computeDispatchKey(meta.type->dtype, c10::Layout::Strided, device);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(meta.type->dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.type->static_sizes(),
                                                      meta.type->static_strides());
  return tensor;
}

at::Tensor to_zeros(const TensorMeta& meta) {
  if (!meta.type) return {};
  std::vector<int64_t> sizes = meta.type->static_sizes();
  std::vector<int64_t> strides = meta.type->static_strides();
  const int64_t elements = meta.offset + std::max<int64_t>(shapes::reach(sizes, strides), 1);
  at::Tensor storage =
      at::zeros({elements}, at::TensorOptions().dtype(meta.type->dtype).device(meta.type->device));
  at::Tensor tensor = at::as_strided(storage, sizes, strides, meta.offset);
  set_flags(tensor, meta);
  return tensor;
}

ir::TensorType type_on(const at::Tensor& tensor, c10::Device device) {
  if (tensor.layout() != c10::Layout::Strided || tensor.is_quantized()) {
    TANDEM_UNSUPPORTED("trace", "a tensor of layout ", tensor.layout(),
                       tensor.is_quantized() ? " (quantized)" : "", " cannot be traced",
                       "\n  tensor: ", tensor.toString(),
                       "\n  remedy: make it dense before the compiled function");
  }
  ir::TensorType type;
  type.dtype = tensor.scalar_type();
  type.device = device;
  type.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  type.strides.assign(tensor.strides().begin(), tensor.strides().end());
  return type;
}

bool takes_tensor(const c10::TypePtr& type) {
  return without_optional(type)->kind() == c10::TypeKind::TensorType;
}

bool takes_tensor_list(const c10::TypePtr& type) {
  auto list = without_optional(type)->cast<c10::ListType>();
  return list && takes_tensor(list->getElementType());
}

c10::Device result_device(const MetaCall& call) {
  const c10::FunctionSchema& schema = call.op.schema();
  for (const MetaArg& arg : call.args) {
    if (arg.kind == MetaArg::Kind::Other && arg.other.isDevice()) return arg.other.toDevice();
  }
  const c10::Device cpu(c10::DeviceType::CPU);
  // `copy` is `copy_` without the write: the source may live elsewhere.
  bool follows_first =
      schema.name() == "aten::copy" ||
      (!schema.arguments().empty() && schema.arguments()[0].alias_info() != nullptr);
  c10::Device found = cpu;
  for (const MetaArg& arg : call.args) {
    for (const TensorMeta& tensor : arg.tensors) {
      if (!tensor.type) continue;
      if (follows_first) return tensor.type->device;
      // A number on the CPU may join operands on another device, never the other way round.
      if (found == cpu) found = tensor.type->device;
    }
  }
  return found;
}

std::string operand_types(const MetaCall& call) {
  std::string text;
  for (const MetaArg& arg : call.args) {
    for (const TensorMeta& tensor : arg.tensors) {
      if (!text.empty()) text += ", ";
      text += tensor.type ? ir::to_string(*tensor.type) : "none";
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace tandem::ops
