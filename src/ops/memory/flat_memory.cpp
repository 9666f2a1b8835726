#include "ops/memory/flat_memory.h"

#include "shapes/reach.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace tandem::ops {

at::Tensor root_of(const at::Tensor& tensor) {
  return tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
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
