#include "ops/memory/flat_memory.h"

#include "shapes/reach.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/select.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace tandem::ops {
namespace {

/// Numbers in memory.
struct Numbers {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  std::optional<int64_t> part{};  // of complex numbers, if not both
};

/// The complex numbers of which a tensor shows both parts, in its last dimension, or one of them.
std::optional<Numbers> numbers_of(const at::Tensor& real) {
  Numbers numbers{real.sizes().vec(), real.strides().vec(), real.storage_offset() / 2,
                  real.storage_offset() % 2};
  if (real.dim() > 0 && real.size(-1) == 2 && real.stride(-1) == 1 && numbers.part == 0) {
    numbers.sizes.pop_back();
    numbers.strides.pop_back();
    numbers.part.reset();
  }
  for (int64_t& stride : numbers.strides) {
    if (stride % 2 != 0) return std::nullopt;
    stride /= 2;
  }
  return numbers;
}

}  // namespace

at::Tensor root_of(const at::Tensor& tensor) {
  return tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
}

bool can_be_taken_of(const at::Tensor& base, const at::Tensor& member) {
  if (base.scalar_type() == member.scalar_type()) return true;
  return base.is_complex() && !base.is_conj() &&
         c10::toRealValueType(base.scalar_type()) == member.scalar_type() &&
         numbers_of(member).has_value();
}

at::Tensor take_view(const at::Tensor& memory, const Taken& taken) {
  const auto& [member, base, keeps_offset] = taken;
  const bool as_real = base.scalar_type() != member.scalar_type();
  const Numbers numbers = as_real ? *numbers_of(member)
                                  : Numbers{member.sizes().vec(), member.strides().vec(),
                                            member.storage_offset(), std::nullopt};
  const bool says_offset = keeps_offset || numbers.offset != base.storage_offset();
  // First: functionalization follows no as_strided() of another view.
  at::Tensor made =
      memory.as_strided(numbers.sizes, numbers.strides,
                        says_offset ? std::optional<int64_t>(numbers.offset) : std::nullopt);
  if (as_real) made = at::view_as_real(made);
  if (member.is_conj() != base.is_conj() && !as_real) made = at::_conj(made);
  // In this order imag() takes the part of a conjugate: zeros of the gradient have signs.
  if (member.is_neg() != base.is_neg()) made = at::_neg_view(made);
  return numbers.part ? made.select(-1, *numbers.part) : made;
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
