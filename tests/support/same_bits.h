#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

namespace tandem::testing {

/// Equal in everything that a program can read off a tensor, data bit for bit.
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
    const at::Tensor difference = (x.to(torch::kDouble) - y.to(torch::kDouble)).abs();
    return ::testing::AssertionFailure()
           << "data differs by up to " << difference.max().item<double>() << " in "
           << difference.count_nonzero().item<int64_t>() << " of " << x.numel();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tandem::testing
