#include "ops/own/class_index.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

at::Tensor class_index(const at::Tensor& target, int64_t classes, int64_t ignore_index) {
  const at::Tensor from = target.contiguous();
  at::Tensor index = at::empty(target.sizes(), target.options());
  const auto* targets = from.const_data_ptr<int64_t>();
  auto* places = index.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < from.numel(); ++i) {
    const int64_t row = targets[i];
    TORCH_CHECK_INDEX(row == ignore_index || (row >= 0 && row < classes), "Target ", row,
                      " is out of bounds.");
    places[i] = row == ignore_index ? 0 : row;
  }
  return index;
}

at::Tensor class_index_meta(const at::Tensor& target, int64_t, int64_t) {
  return at::empty(target.sizes(), target.options());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  using c10::DispatchKey;
  library.def("class_index(Tensor target, int classes, int ignore_index) -> Tensor",
              {at::Tag::pointwise});
  library.impl("class_index",
               torch::dispatch(DispatchKey::CompositeExplicitAutograd, TORCH_FN(class_index)));
  library.impl("class_index", torch::dispatch(DispatchKey::Meta, TORCH_FN(class_index_meta)));
}

constinit const OwnOp kClassIndex{"tandem::class_index"};

}  // namespace tandem::ops
