#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace tandem {
namespace {

using at::Tensor;

struct Statistics {
  explicit Statistics(int64_t channels, at::ScalarType dtype)
      : mean(torch::randn({channels}).to(dtype)),
        variance((torch::rand({channels}) + 0.5).to(dtype)),
        weight(torch::randn({channels}).to(dtype)),
        bias(torch::randn({channels}).to(dtype)) {}
  Tensor mean, variance, weight, bias;
};

Tensor evaluated(const Tensor& x, const Statistics& s, bool weight = true, bool bias = true) {
  return at::batch_norm(x, weight ? s.weight : Tensor(), bias ? s.bias : Tensor(), s.mean,
                        s.variance, false, 0.1, 1e-3, false);
}

// Nothing is summed, so nothing excuses other bits: what follows may compare them.
TEST(Norms, BatchNormInEvaluationHasEagersBits) {
  torch::manual_seed(3);
  const auto last = [](const Tensor& x) {
    return x.contiguous(x.dim() == 4 ? at::MemoryFormat::ChannelsLast
                                     : at::MemoryFormat::ChannelsLast3d);
  };
  const auto data = [](std::vector<int64_t> sizes) { return torch::randn(sizes) * 3 + 2; };
  const std::vector<Tensor> inputs = {data({9, 7}),          data({4, 7, 33}),
                                      data({4, 7, 5, 9}),    last(data({3, 32, 6, 6})),
                                      data({2, 7, 3, 4, 5}), last(data({2, 16, 3, 4, 5}))};
  for (const Tensor& input : inputs) {
    for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const Statistics s(input.size(1), dtype);
      const Tensor x = input.to(dtype);
      for (int given = 0; given < 4; ++given) {
        SCOPED_TRACE(testing::Message() << x.sizes() << " " << dtype << " " << given);
        const auto f = [&](const Tensor& t) { return evaluated(t, s, given & 1, given & 2); };
        const Tensor found = compile(f, Options{.backend = "llvm"})(x), expected = f(x);
        EXPECT_EQ(found.strides(), expected.strides());
        // Eager rounds the last 16-bit elements, which fill no vector, once more.
        const double allowed = at::isReducedFloatingType(dtype) ? 1e-5 : 0;
        EXPECT_LE((found - expected).abs().max().item<double>(), allowed);
      }
    }
  }
}

// Where the input is the mean, the result is the bias but for a rounding, and that rounding decides
// to which side of a maximum the gradient goes.
TEST(Norms, AMaximumBehindBatchNormInEvaluationDecidesAsInEager) {
  torch::manual_seed(3);
  const Tensor base = torch::randn({64});
  const Tensor variance = torch::rand({64}) + 0.5;
  const auto f = [&](const Tensor& x) {
    const Tensor y =
        at::batch_norm(x.repeat({3, 1}), x, x, x.detach(), variance, false, 0.1, 1e-3, false);
    return y.maximum(x).sum();
  };
  const auto gradient = [&](const std::function<Tensor(const Tensor&)>& function) {
    const Tensor x = base.clone().requires_grad_(true);
    return torch::autograd::grad({function(x)}, {x})[0];
  };
  const Tensor expected = gradient(f);
  const Tensor found = gradient(compile(f, Options{.backend = "llvm"}));
  EXPECT_TRUE(at::allclose(found, expected, 1e-5, 1e-5)) << (found - expected).abs().max();
}

}  // namespace
}  // namespace tandem
