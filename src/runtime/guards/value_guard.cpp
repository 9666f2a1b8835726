#include "runtime/guards/value_guard.h"

#include "base/error.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/equal.h>

namespace tandem::runtime {

std::optional<std::string> ValueGuard::mismatch(std::span<const at::Tensor> lifted,
                                                std::span<const at::Tensor> arguments) const {
  const at::Tensor& a = (a_.lifted ? lifted : arguments)[a_.index];
  const at::Tensor& b = (b_.lifted ? lifted : arguments)[b_.index];
  at::AutoDispatchBelowADInplaceOrView below;
  if ((a.is_same(b) || at::equal(a, b)) == equal_) return std::nullopt;
  return base::str(
      a_.name, " and ", b_.name, " are ",
      equal_ ? "not equal, compiled for equal tensors" : "equal, compiled for tensors that differ");
}

std::string ValueGuard::to_string() const {
  return base::str(a_.name, " and ", b_.name, equal_ ? " are equal" : " are not equal");
}

}  // namespace tandem::runtime
