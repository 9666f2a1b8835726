#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

// gelu has formulas of its own in kernels: at most 2 units in the last place further from the truth
// than eager, in every interval of its argument.

namespace tandem {
namespace {

using at::Tensor;
using Function = std::function<Tensor(Tensor, Tensor)>;

constexpr int64_t kIntervals = 300, kEach = 2000;

/// The largest of each interval.
Tensor largest(const Tensor& x) {
  return x.to(at::kDouble).abs().view({kIntervals, kEach}).amax(1);
}

/// x / (1 + e^(-2u)) or x Phi(x) in f64: eager's own formulas cancel where x is negative.
Tensor exact_gelu(const Tensor& x, const std::string& form) {
  if (form == "none") return x * at::erfc(x * -std::sqrt(0.5)) / 2;
  return x * at::sigmoid((x + x.pow(3) * 0.044715) * (2 * std::sqrt(2 / M_PI)));
}

Tensor exact_gradient(const Tensor& x, const Tensor& g, const std::string& form) {
  const Tensor leaf = x.clone().requires_grad_();
  exact_gelu(leaf, form).backward(g);
  return leaf.grad();
}

/// `terms`: the size of what is added up; units are counted from it where terms cancel.
void expect_close(const Function& function, const Function& exact, at::ScalarType dtype,
                  double terms) {
  torch::manual_seed(0);
  Options options;
  options.backend = "llvm";
  auto compiled = compile(function, options);
  const Tensor x = torch::linspace(-15, 15, kIntervals * kEach, at::kDouble).to(dtype);
  const Tensor g = (torch::rand(x.sizes(), at::kDouble) + 0.5).to(dtype);
  const Tensor truth = exact(x.to(at::kDouble), g.to(at::kDouble));
  const Tensor ours = largest(compiled(x, g).to(at::kDouble) - truth);
  const Tensor eager = largest(function(x, g).to(at::kDouble) - truth);
  const double eps = dtype == at::kFloat ? 0x1p-23 : dtype == at::kHalf ? 0x1p-10 : 0x1p-7;
  const double tiny = dtype == at::kHalf ? 0x1p-24 : 1e-37;
  const Tensor excess = ours - eager - 2 * eps * largest(truth).clamp_min(terms) - tiny;
  const int64_t worst = excess.argmax().item<int64_t>();
  EXPECT_LE(excess.max().item<double>(), 0)
      << "near " << x[worst * kEach].item<double>() << ": " << ours[worst].item<double>()
      << ", eager " << eager[worst].item<double>() << ", values of "
      << largest(truth)[worst].item<double>();
}

TEST(LlvmGelu, IsAsNearToTheTruthAsEager) {
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const char* form : {"none", "tanh"}) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + " " + form);
      expect_close([form](Tensor x, Tensor) { return at::gelu(x, form); },
                   [form](Tensor x, Tensor) { return exact_gelu(x, form); }, dtype, 0);
      expect_close([form](Tensor x, Tensor g) { return at::gelu_backward(g, x, form); },
                   [form](Tensor x, Tensor g) { return exact_gradient(x, g, form); }, dtype,
                   /*terms=*/0.25);
    }
  }
}

TEST(LlvmGelu, Edges) {
  Options options;
  options.backend = "llvm";
  // Not infinity, for which eager's own kernels disagree.
  const Tensor x = torch::tensor({-1e30, -200.0, -0.0, 0.0, 200.0, 1e30, std::nan("")});
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const char* form : {"none", "tanh"}) {
      auto compiled = compile([form](const Tensor& t) { return at::gelu(t, form); }, options);
      EXPECT_TRUE(at::equal(compiled(x.to(dtype)).nan_to_num(7, 8, 9),
                            at::gelu(x.to(dtype), form).nan_to_num(7, 8, 9)))
          << form << compiled(x.to(dtype)) << at::gelu(x.to(dtype), form);
    }
  }
}

}  // namespace
}  // namespace tandem
