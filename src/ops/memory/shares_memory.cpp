#include "ops/memory/shares_memory.h"

namespace tandem::ops {

shapes::StridedView place_of(const at::Tensor& tensor) {
  return {.offset = tensor.storage_offset(),
          .sizes = {tensor.sizes().data(), tensor.sizes().size()},
          .strides = {tensor.strides().data(), tensor.strides().size()},
          .element_bytes = static_cast<int64_t>(tensor.element_size())};
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.is_same(b)) return false;
  return a.storage().is_alias_of(b.storage()) && shapes::may_overlap(place_of(a), place_of(b));
}

}  // namespace tandem::ops
