#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/rules/rules.h"

#include <utility>

namespace tandem::ops::rules {
namespace {

constexpr int64_t kSumMode = 0, kMaxMode = 2;

bool is_zero(const ir::Size& size) { return size == ir::Size(0); }

/// Whether the kernel sums rows straight into the result, and then has no use for offset2bag.
bool sums_rows_directly(const Args& args) {
  const TensorType& weight = *args.tensor("weight");
  const TensorType* per_sample = args.tensor("per_sample_weights");
  bool dtype = weight.dtype == ScalarType::Float || weight.dtype == ScalarType::Half ||
               weight.dtype == ScalarType::BFloat16;
  bool strides =
      weight.strides[1] == ir::Size(1) && (!per_sample || per_sample->strides[0] == ir::Size(1));
  return args.integer("mode") == kSumMode && dtype && strides && args.integer("padding_idx") < 0;
}

struct Bags {
  ir::Size count, rows;
  bool fits = false;
};

Bags bags_of(const Args& args) {
  Bags bags;
  const TensorType *weight = args.tensor("weight"), *offsets = args.tensor("offsets");
  bags.fits = weight->rank() == 2 && args.tensor("indices")->rank() == 1 && offsets->rank() == 1;
  if (!bags.fits) return bags;
  bags.rows = offsets->sizes[0];
  bags.count = args.flag("include_last_offset") ? bags.rows - 1 : bags.rows;
  return bags;
}

}  // namespace

// Index tensors of integers have a Meta kernel; masks select as many elements as the data says.
Results index(const MetaCall& call) {
  for (const TensorMeta& indices : Args(call).tensors("indices")) {
    if (!indices.type) continue;
    if (indices.type->dtype != ScalarType::Bool && indices.type->dtype != ScalarType::Byte)
      continue;
    TANDEM_UNSUPPORTED("trace", ir::op_text(call.op),
                       " with a mask has a result whose size depends on data",
                       "\n  operands: ", operand_types(call),
                       "\n  remedy:   keep the full size and use where or masked_fill");
  }
  return std::nullopt;
}

// Written by a mask it keeps its sizes; libtorch's Meta kernel would want to know where it is true.
Results index_put(const MetaCall& call) {
  for (const TensorMeta& indices : Args(call).tensors("indices")) {
    if (indices.type &&
        (indices.type->dtype == ScalarType::Bool || indices.type->dtype == ScalarType::Byte)) {
      return answer(like_preserved(*Args(call).tensor("self")));
    }
  }
  return std::nullopt;
}

Results repeat_interleave(const MetaCall& call) {
  Args args(call);
  if (args.none("output_size")) {
    TANDEM_UNSUPPORTED("trace", ir::op_text(call.op), " has a result whose size depends on data",
                       "\n  operands: ", operand_types(call), "\n  remedy:   give output_size");
  }
  return answer(contiguous(*args.tensor("repeats"), {args.integer("output_size")}));
}

Results index_select(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *index = args.tensor("index");
  int64_t dim = wrapped(args.integer("dim"), self->rank());
  if (dim < 0 || index->rank() > 1) return std::nullopt;
  Sizes sizes = self->sizes;
  if (sizes.empty()) {
    if (!(index->numel() == ir::Size(1))) return std::nullopt;
  } else {
    ir::Size& size = sizes[static_cast<size_t>(dim)];
    if (is_zero(size) && !is_zero(index->numel()))
      return std::nullopt;  // every index is out of range
    size = index->numel();
  }
  return answer(contiguous(*self, std::move(sizes)));
}

// To compare dtypes, libtorch's Meta kernels look at the first slice of each tensor, which empty
// ones do not have. Its other kernels do not, and what is not empty is left to it.
Results index_add(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *source = args.tensor("source"),
                   *index = args.tensor("index");
  const int64_t dim = wrapped(args.integer("dim"), self->rank());
  if (dim < 0 || self->rank() == 0 || source->rank() != self->rank() || index->rank() > 1)
    return std::nullopt;
  Sizes sizes = self->sizes;
  const ir::Size rows = std::exchange(sizes[static_cast<size_t>(dim)], index->numel());
  const bool legal = self->dtype == source->dtype && sizes == source->sizes &&
                     (index->dtype == ScalarType::Long || index->dtype == ScalarType::Int);
  if (!legal || !(is_zero(rows) || is_zero(index->numel()))) return std::nullopt;
  return answer(contiguous(*self, self->sizes));
}

Results take(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *index = args.tensor("index");
  if (is_zero(self->numel()) && !is_zero(index->numel())) return std::nullopt;
  return answer(contiguous(*self, index->sizes));
}

Results embedding(const MetaCall& call) {
  Args args(call);
  const TensorType *weight = args.tensor("weight"), *indices = args.tensor("indices");
  bool legal = indices->dtype == ScalarType::Long || indices->dtype == ScalarType::Int;
  if (weight->rank() != 2 || !legal) return std::nullopt;
  if (is_zero(weight->sizes[0]) && !is_zero(indices->numel())) return std::nullopt;
  Sizes sizes = indices->sizes;
  sizes.push_back(weight->sizes[1]);
  return answer(contiguous(*weight, std::move(sizes)));
}

Results embedding_dense_backward(const MetaCall& call) {
  Args args(call);
  const TensorType* grad = args.tensor("grad_output");
  if (grad->rank() == 0) return std::nullopt;
  return answer(contiguous(*grad, {args.integer("num_weights"), grad->sizes.back()}));
}

Results embedding_bag(const MetaCall& call) {
  Args args(call);
  const TensorType &weight = *args.tensor("weight"), &indices = *args.tensor("indices");
  const TensorType& offsets = *args.tensor("offsets");
  Bags bags = bags_of(args);
  if (!bags.fits) return std::nullopt;
  bool direct = weight.device.is_cpu() && sums_rows_directly(args);
  TensorType bag_size = contiguous(offsets, {bags.count});
  TensorType max_indices = args.integer("mode") == kMaxMode
                               ? contiguous(offsets, {bags.count, weight.sizes[1]})
                               : bag_size;
  return answer(contiguous(weight, {bags.count, weight.sizes[1]}),
                contiguous(offsets, {direct ? ir::Size(0) : indices.sizes[0]}), bag_size,
                max_indices);
}

// Without gradients the kernel skips some work, and with it some trimming: bag_size and max_indices
// of mode sum are one longer than the bags.
Results embedding_bag_forward_only(const MetaCall& call) {
  Args args(call);
  Results results = embedding_bag(call);
  bool longer = args.integer("mode") == kSumMode && args.flag("include_last_offset");
  if (!results || !longer || !args.tensor("weight")->device.is_cpu()) return results;
  if (!sums_rows_directly(args)) return std::nullopt;
  const TensorType& offsets = *args.tensor("offsets");
  (*results)[2] = tensor_result(contiguous(offsets, {offsets.sizes[0]}));
  (*results)[3] = (*results)[2];
  return results;
}

Results embedding_bag_backward(const MetaCall& call) {
  Args args(call);
  const TensorType* grad = args.tensor("grad");
  bool sparse = call.op.schema().argumentIndexWithName("sparse") && args.flag("sparse");
  if (grad->rank() != 2 || sparse) return std::nullopt;
  return answer(contiguous(*grad, {args.integer("num_weights"), grad->sizes[1]}));
}

Results embedding_bag_weights_backward(const MetaCall& call) {
  Args args(call);
  return answer(contiguous(*args.tensor("grad"), args.tensor("indices")->sizes));
}

Results bucketize(const MetaCall& call) {
  Args args(call);
  ScalarType dtype = args.flag("out_int32") ? ScalarType::Int : ScalarType::Long;
  return answer(contiguous(*args.tensor(0), args.tensor(0)->sizes, dtype));
}

Results searchsorted(const MetaCall& call) {
  Args args(call);
  ScalarType dtype = args.flag("out_int32") ? ScalarType::Int : ScalarType::Long;
  return answer(contiguous(*args.tensor("self"), args.tensor("self")->sizes, dtype));
}

Results segment_reduce(const MetaCall& call) {
  Args args(call);
  const TensorType *data = args.tensor("data"), *lengths = args.tensor("lengths"),
                   *offsets = args.tensor("offsets");
  int64_t axis = wrapped(args.integer("axis"), data->rank());
  const TensorType* segments = offsets ? offsets : lengths;
  if (axis < 0 || !segments || segments->rank() != axis + 1) return std::nullopt;
  Sizes sizes = segments->sizes;
  if (offsets) sizes.back() = sizes.back() - 1;
  sizes.insert(sizes.end(), data->sizes.begin() + axis + 1, data->sizes.end());
  return answer(contiguous(*data, std::move(sizes)));
}

}  // namespace tandem::ops::rules
