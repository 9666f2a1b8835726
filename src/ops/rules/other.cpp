#include "ops/metadata/meta_tensor.h"
#include "ops/rules/rules.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/narrow.h>

#include <algorithm>

namespace tandem::ops::rules {

// One shift is a cat of two slices, done here on the Meta device; several are that many rolls.
Results roll(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> shifts = args.integers("shifts"), dims = args.integers("dims");
  bool one = shifts.size() == 1 && dims.size() == 1 && self->rank() > 0;
  int64_t dim = one ? wrapped(dims[0], self->rank()) : -1;
  if (dim < 0) return std::nullopt;
  if (self->numel() == ir::Size(0)) return answer(like_preserved(*self));
  at::Tensor meta = to_meta_tensor(args.meta("self"));
  int64_t size = meta.size(dim);
  int64_t start = mod(ir::Size(size - shifts[0]), size).value();
  at::Tensor front = meta.narrow(dim, start, size - start), back = meta.narrow(dim, 0, start);
  return answer(type_on(at::cat({front, back}, dim), self->device));
}

Results native_dropout(const MetaCall& call) {
  Args args(call);
  const TensorType* input = args.tensor("input");
  if (!c10::isFloatingType(input->dtype)) return std::nullopt;
  TensorType output = like_preserved(*input);
  // Without elements the kernel returns early, with a mask of the wrong dtype.
  bool empty = input->numel() == ir::Size(0);
  return answer(output, with_dtype(output, empty ? input->dtype : ScalarType::Bool));
}

Results multinomial(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  int64_t samples = args.integer("num_samples");
  bool fits = (self->rank() == 1 || self->rank() == 2) && c10::isFloatingType(self->dtype) &&
              samples > 0 && (args.flag("replacement") || samples <= self->sizes.back().value());
  if (!fits) return std::nullopt;
  Sizes sizes = self->sizes;
  sizes.back() = samples;
  return answer(contiguous(*self, std::move(sizes), ScalarType::Long));
}

Results randperm(const MetaCall& call) {
  Args args(call);
  int64_t count = args.integer("n");
  if (count < 0) return std::nullopt;
  return answer(TensorType::contiguous(args.dtype("dtype").value_or(ScalarType::Long), {count},
                                       args.device()));
}

// The functional form of an op that writes its lists: result `x_out` is a changed copy of argument
// `x`.
Results written_lists(const MetaCall& call) {
  Args args(call);
  std::vector<MetaResult> results;
  for (const c10::Argument& result : call.op.schema().returns()) {
    constexpr std::string_view kSuffix = "_out";
    std::string name = result.name();
    if (!name.ends_with(kSuffix)) return std::nullopt;
    name.resize(name.size() - kSuffix.size());
    std::vector<TensorType> types;
    for (const TensorMeta& tensor : args.tensors(name.c_str())) {
      types.push_back(like_preserved(*tensor.type));
    }
    results.push_back(list_result(std::move(types)));
  }
  return results;
}

Results triangle_indices(const MetaCall& call) {
  Args args(call);
  int64_t rows = args.integer("row"), columns = args.integer("col"),
          offset = args.integer("offset");
  if (rows < 0 || columns < 0) return std::nullopt;
  bool lower = call.op.schema().name() == "aten::tril_indices";
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t below = std::clamp<int64_t>(row + offset + (lower ? 1 : 0), 0, columns);
    count += lower ? below : columns - below;
  }
  return answer(TensorType::contiguous(args.dtype("dtype").value_or(ScalarType::Long), {2, count},
                                       args.device()));
}

Results nothing(const MetaCall&) { return std::vector<MetaResult>{}; }

}  // namespace tandem::ops::rules
