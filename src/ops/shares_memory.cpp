#include "ops/shares_memory.h"

#include "shapes/overlap.h"

namespace tandem::ops {
namespace {

shapes::StridedView view_of(const at::Tensor& tensor) {
  return {.offset = tensor.storage_offset(),
          .sizes = {tensor.sizes().data(), tensor.sizes().size()},
          .strides = {tensor.strides().data(), tensor.strides().size()},
          .element_bytes = static_cast<int64_t>(tensor.element_size())};
}

}  // namespace

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.is_same(b)) return false;
  return a.storage().is_alias_of(b.storage()) && shapes::may_overlap(view_of(a), view_of(b));
}

}  // namespace tandem::ops
