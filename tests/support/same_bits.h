#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::test {

/// TANDEM_BACKEND=llvm: functions and sums round in their own way.
inline bool backend_rounds() {
  const char* backend = std::getenv("TANDEM_BACKEND");
  return backend != nullptr && std::string_view(backend) == "llvm";
}

/// What Adam adds to the size of a gradient before it divides by it. With its own 1e-8, where a
/// gradient vanishes but for rounding (of a bias before a norm, of a key's bias in attention) it
/// divides noise by noise, and makes a whole step of either sign: no function that rounding could
/// be judged behind.
inline double adam_eps() { return backend_rounds() ? 1e-4 : 1e-8; }

/// Knows what an eager run would have given in float64: WideRun (wide_run.h).
class RoundingJudge {
 public:
  virtual ~RoundingJudge() = default;
  /// Nothing if it does not know the tensor; empty if `compiled` is within the bounds; else why
  /// not.
  virtual std::optional<std::string> beyond(const at::Tensor& eager,
                                            const at::Tensor& compiled) const = 0;
};
inline thread_local const RoundingJudge* rounding_judge = nullptr;

/// From 1 to the next number of a floating dtype; of a complex one, that of its parts.
inline double eps_of(at::ScalarType dtype) {
  switch (c10::toRealValueType(dtype)) {
    case at::kBFloat16:
      return 0x1p-7;
    case at::kHalf:
      return 0x1p-10;
    case at::kFloat:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

/// For tensors that no judge knows, as two compiled runs compared with each other: 512 units in the
/// last place of the largest value.
inline bool differs_by_rounding(const at::Tensor& a, const at::Tensor& b) {
  if (!at::isFloatingType(a.scalar_type()) && !at::isComplexType(a.scalar_type())) return false;
  const at::Tensor x = at::isComplexType(a.scalar_type()) ? at::view_as_real(a) : a;
  const at::Tensor y = at::isComplexType(b.scalar_type()) ? at::view_as_real(b) : b;
  const double eps = eps_of(x.scalar_type());
  const at::Tensor wide = x.to(at::kDouble), other = y.to(at::kDouble);
  const at::Tensor finite = wide.masked_select(wide.isfinite()).abs();
  const double largest = finite.numel() == 0 ? 0 : finite.max().item<double>();
  return at::allclose(wide, other, 0, 512 * eps * std::max(largest, 1e-3), true);
}

/// Equal in everything that a program can read off a tensor, data bit for bit. If the backend
/// rounds, the data of numbers is judged by the bounds of WideRun, against eager's `a`.
inline ::testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) {
    return ::testing::AssertionFailure() << (a.defined() ? "defined" : "undefined") << " against "
                                         << (b.defined() ? "defined" : "undefined");
  }
  if (!a.defined()) return ::testing::AssertionSuccess();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return ::testing::AssertionFailure()
           << a.toString() << a.sizes() << " against " << b.toString() << b.sizes();
  }
  if (a.requires_grad() != b.requires_grad()) {
    return ::testing::AssertionFailure()
           << "requires_grad " << a.requires_grad() << " against " << b.requires_grad();
  }
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  if (x.numel() > 0 && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) != 0) {
    if (backend_rounds()) {
      const auto beyond = rounding_judge ? rounding_judge->beyond(a, y) : std::nullopt;
      if (beyond && beyond->empty()) return ::testing::AssertionSuccess();
      if (beyond) return ::testing::AssertionFailure() << *beyond;
      if (differs_by_rounding(x, y)) return ::testing::AssertionSuccess();
    }
    const at::Tensor difference = (x.to(torch::kDouble) - y.to(torch::kDouble)).abs();
    return ::testing::AssertionFailure()
           << "data differs by up to " << difference.max().item<double>() << " in "
           << difference.count_nonzero().item<int64_t>() << " of " << x.numel();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tandem::test
