#include "ops/memory/flat_memory.h"

#include "shapes/reach.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace tandem::ops {

at::Tensor root_of(const at::Tensor& tensor) {
  return tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
}

at::Tensor as_lazy_as(const at::Tensor& member, const at::Tensor& base, const at::Tensor& view) {
  at::Tensor made = view;
  if (member.is_conj() != base.is_conj()) made = at::_conj(made);
  if (member.is_neg() != base.is_neg()) made = at::_neg_view(made);
  return made;
}

at::Tensor flat_memory(std::span<const at::Tensor> tensors) {
  int64_t first = tensors[0].storage_offset(), end = first;
  for (const at::Tensor& tensor : tensors) {
    first = std::min(first, tensor.storage_offset());
    end = std::max(end, tensor.storage_offset() + shapes::reach(tensor.sizes(), tensor.strides()));
  }
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor flat = at::empty({0}, tensors[0].options());
  return flat.set_(tensors[0].storage(), first, {end - first}, {1});
}

}  // namespace tandem::ops
