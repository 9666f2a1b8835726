#include "ops/memory/flat_memory.h"

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
    int64_t last = tensor.storage_offset();
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      if (tensor.size(i) > 0) last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    first = std::min(first, tensor.storage_offset());
    end = std::max(end, last + (tensor.numel() > 0 ? 1 : 0));
  }
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor flat = at::empty({0}, tensors[0].options());
  return flat.set_(tensors[0].storage(), first, {end - first}, {1});
}

}  // namespace tandem::ops
