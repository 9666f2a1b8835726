#include "runtime/guards/memory_pattern.h"

#include "libtorch/private_members.h"
#include "ops/memory/flat_memory.h"
#include "ops/memory/shares_memory.h"

namespace tandem::runtime {
namespace {

int64_t start_of(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

}  // namespace

MemoryPattern::MemoryPattern(std::span<const at::Tensor> closed_over,
                             std::span<const at::Tensor> arguments) {
  const auto other = [&](size_t i) -> const at::Tensor& {
    return i < closed_over.size() ? closed_over[i] : arguments[i - closed_over.size()];
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor& a = arguments[i];
    if (!a.defined() || !a.has_storage()) continue;
    for (size_t j = 0; j < closed_over.size() + i; ++j) {
      const at::Tensor& b = other(j);
      if (!b.defined() || !b.has_storage() || a.is_same(b)) continue;
      if (!a.storage().is_alias_of(b.storage())) continue;
      Pair& pair = pairs_.emplace_back();
      pair.argument = i;
      pair.other = j;
      pair.overlap = ops::shares_memory(a, b);
      pair.one_root = ops::root_of(a).is_same(ops::root_of(b));
      pair.one_counter = libtorch::same_counter(*a.unsafeGetTensorImpl(), *b.unsafeGetTensorImpl());
      if (pair.overlap) pair.bytes_apart = start_of(a) - start_of(b);
    }
  }
}

ArgumentPlaces::ArgumentPlaces(std::span<const at::Tensor> closed_over,
                               std::span<const at::Tensor> arguments)
    : pattern_(closed_over, arguments) {
  for (const at::Tensor& tensor : arguments)
    is_view_.push_back(tensor.defined() && tensor.is_view());
}

}  // namespace tandem::runtime
