#include "ops/rules/rule_blocks.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/metadata/meta_tensor.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TypeProperties.h>

namespace tandem::ops::rules {

const MetaArg& Args::arg(Key key) const {
  if (key.position >= 0) return call_.args[static_cast<size_t>(key.position)];
  const auto& arguments = call_.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == key.name) return call_.args[i];
  }
  TANDEM_CHECK(false, "trace", ir::op_text(call_.op), " has no argument ", key.name);
}

const TensorMeta& Args::meta(Key key) const {
  const MetaArg& found = arg(key);
  TANDEM_CHECK(found.kind == MetaArg::Kind::Tensor, "trace", "argument ", key.position, key.name,
               " of ", ir::op_text(call_.op), " is not a tensor");
  return found.tensors[0];
}

const std::vector<TensorMeta>& Args::tensors(Key key) const { return arg(key).tensors; }

bool Args::none(Key key) const {
  const MetaArg& found = arg(key);
  return found.kind == MetaArg::Kind::Tensor
             ? found.tensors[0].type == nullptr
             : found.kind == MetaArg::Kind::Other && found.other.isNone();
}

const c10::IValue& Args::value(Key key) const { return arg(key).other; }
int64_t Args::integer(Key key) const { return value(key).toInt(); }
bool Args::flag(Key key) const { return value(key).toBool(); }
std::string Args::text(Key key) const { return value(key).toStringRef(); }

std::vector<int64_t> Args::integers(Key key) const {
  const c10::IValue& list = value(key);
  std::vector<int64_t> numbers;
  if (list.isInt()) return {list.toInt()};
  if (list.isNone()) return numbers;
  for (const c10::IValue& element : list.toListRef()) {
    numbers.push_back(element.isBool() ? element.toBool() : element.toInt());
  }
  return numbers;
}

std::optional<ScalarType> Args::dtype(Key key) const {
  const c10::IValue& found = value(key);
  return found.isNone() ? std::nullopt : std::optional(static_cast<ScalarType>(found.toInt()));
}

c10::Device Args::device() const { return result_device(call_); }

MetaResult tensor_result(TensorType type) {
  MetaResult result = undefined_result();
  result.tensors[0].type = std::make_shared<const TensorType>(std::move(type));
  return result;
}

MetaResult undefined_result() {
  MetaResult result;
  result.kind = MetaResult::Kind::Tensor;
  result.tensors.emplace_back();
  return result;
}

MetaResult list_result(std::vector<TensorType> types) {
  MetaResult result;
  result.kind = MetaResult::Kind::TensorList;
  for (TensorType& type : types) {
    result.tensors.push_back({std::make_shared<const TensorType>(std::move(type))});
  }
  return result;
}

MemoryFormat suggested_format(const TensorType& type) {
  std::vector<int64_t> sizes = type.static_sizes(), strides = type.static_strides();
  if (c10::is_channels_last_strides_2d(sizes, strides)) return MemoryFormat::ChannelsLast;
  if (c10::is_channels_last_strides_3d(sizes, strides)) return MemoryFormat::ChannelsLast3d;
  return MemoryFormat::Contiguous;
}

std::optional<MemoryFormat> dense_format(const TensorType& type) {
  at::Tensor meta = to_meta_tensor({std::make_shared<const TensorType>(type)});
  for (MemoryFormat format :
       {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast3d, MemoryFormat::ChannelsLast}) {
    if (meta.is_contiguous(format)) return format;
  }
  return std::nullopt;
}

TensorType contiguous(const TensorType& like, Sizes sizes, ScalarType dtype) {
  return TensorType::contiguous(dtype, std::move(sizes), like.device);
}

TensorType contiguous(const TensorType& like, Sizes sizes) {
  return contiguous(like, std::move(sizes), like.dtype);
}

TensorType with_sizes(const TensorType& like, Sizes sizes, MemoryFormat format) {
  TensorType type = contiguous(like, std::move(sizes));
  size_t rank = type.sizes.size();
  bool channels_last = (format == MemoryFormat::ChannelsLast && rank == 4) ||
                       (format == MemoryFormat::ChannelsLast3d && rank == 5);
  if (!channels_last) return type;
  // Channels innermost, then the last spatial dimension outwards, then the batch. A size of 0
  // counts as 1, as in libtorch.
  auto at_least_one = [](const ir::Size& size) { return size == ir::Size(0) ? ir::Size(1) : size; };
  type.strides[1] = 1;
  ir::Size stride = at_least_one(type.sizes[1]);
  for (size_t dim = rank - 1; dim >= 2; --dim) {
    type.strides[dim] = stride;
    stride = stride * at_least_one(type.sizes[dim]);
  }
  type.strides[0] = stride;
  return type;
}

TensorType like_contiguous(const TensorType& type) { return contiguous(type, type.sizes); }

TensorType like_suggested(const TensorType& type) {
  return with_sizes(type, type.sizes, suggested_format(type));
}

TensorType like_preserved(const TensorType& type) {
  at::Tensor meta = to_meta_tensor({std::make_shared<const TensorType>(type)});
  if (meta.is_non_overlapping_and_dense()) return type;
  TensorType result = type;
  std::vector<int64_t> strides = at::infer_dense_strides(meta.sizes(), meta.strides());
  result.strides.assign(strides.begin(), strides.end());
  return result;
}

TensorType column_major(const TensorType& like, Sizes sizes) {
  size_t rank = sizes.size();
  std::swap(sizes[rank - 1], sizes[rank - 2]);
  TensorType type = contiguous(like, std::move(sizes));
  std::swap(type.sizes[rank - 1], type.sizes[rank - 2]);
  std::swap(type.strides[rank - 1], type.strides[rank - 2]);
  return type;
}

TensorType with_dtype(TensorType type, ScalarType dtype) {
  type.dtype = dtype;
  return type;
}

int64_t wrapped(int64_t dim, int64_t rank) {
  int64_t limit = std::max<int64_t>(rank, 1);
  if (dim < -limit || dim >= limit) return -1;
  return dim < 0 ? dim + limit : dim;
}

bool same_sizes(const TensorType& a, const TensorType& b) { return a.sizes == b.sizes; }

TensorType iterated(const Args& args, std::initializer_list<const TensorMeta*> operands,
                    ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).declare_static_dtype_and_device(
      dtype, c10::Device(c10::DeviceType::Meta));
  config.add_owned_output(at::Tensor());
  for (const TensorMeta* operand : operands) config.add_owned_const_input(to_meta_tensor(*operand));
  at::TensorIterator iterator = config.build();
  return type_on(iterator.output(), args.device());
}

TensorMeta converted(const TensorMeta& operand, ScalarType dtype) {
  if (operand.type->dtype == dtype || !operand.type->device.is_cpu()) return operand;
  TensorMeta result = operand;
  result.type =
      std::make_shared<const TensorType>(with_dtype(like_preserved(*operand.type), dtype));
  return result;
}

ScalarType promoted(std::initializer_list<const TensorMeta*> operands) {
  at::native::ResultTypeState state;
  for (const TensorMeta* operand : operands) {
    state = at::native::update_result_type_state(to_meta_tensor(*operand), state);
  }
  return at::native::result_type(state);
}

ScalarType promoted(const TensorMeta& tensor, const c10::IValue& number) {
  at::native::ResultTypeState state;
  state = at::native::update_result_type_state(to_meta_tensor(tensor), state);
  state = at::native::update_result_type_state(number.toScalar(), state);
  return at::native::result_type(state);
}

}  // namespace tandem::ops::rules
