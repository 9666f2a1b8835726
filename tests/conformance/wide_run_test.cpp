#include "support/wide_run.h"

#include "support/environment.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Views, writes through them, draws over a value, sums; results and the gradient of the input.
Tensors program(const at::Tensor& input) {
  at::Tensor x = input.detach().clone().requires_grad_();
  at::Tensor y = (x * 0.1).sin();
  y.select(0, 1).mul_(3).add_(x.select(0, 0).exp());
  y = torch::nn::functional::layer_norm(
      y, torch::nn::functional::LayerNormFuncOptions({y.size(-1)}).eps(1e-5));
  y = at::cat({y.t().reshape({-1}), x.flatten().cumsum(0)});
  const at::Tensor loss = y.pow(3).mean() + y.softmax(0).slice(0, 0, 4).sum();
  return {y.detach(), loss.detach(), torch::autograd::grad({loss}, {x})[0]};
}

class WideRuns : public ::testing::Test {
  test::EnvironmentVariable backend_{"TANDEM_BACKEND", "llvm"};
};

TEST_F(WideRuns, HoldsWhatFloat64Gives) {
  torch::manual_seed(1);
  const at::Tensor input = torch::randn({3, 5});
  const Tensors plain = program(input), truth = program(input.to(at::kDouble));
  WideRun run;
  Tensors seen;
  {
    const WideRun::Scope scope(run);
    seen = program(input);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_TRUE(at::equal(seen[i], plain[i])) << "the run itself has changed";
    ASSERT_TRUE(run.wide(seen[i]).defined());
    EXPECT_TRUE(at::allclose(run.wide(seen[i]), truth[i], 0, 1e-13)) << i;
    EXPECT_FALSE(at::equal(run.wide(seen[i]), seen[i].to(at::kDouble))) << i;
    EXPECT_EQ(run.narrow(seen[i]).scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(run.narrow(seen[i]), seen[i], 1e-6, 1e-6)) << i;
  }
}

TEST_F(WideRuns, DrawsTheSameNumbers) {
  WideRun run;
  const WideRun::Scope scope(run);
  const at::Tensor x = torch::rand({64}).add(1).sqrt();
  const at::Tensor y = at::dropout(x, 0.5, true), z = std::get<0>(at::native_dropout(x, 0.5, true));
  const at::Tensor noise = torch::randn({8});
  EXPECT_TRUE(at::equal(run.wide(y).eq(0), y.eq(0)));
  EXPECT_TRUE(at::allclose(run.wide(y), run.wide(x) * y.ne(0) * 2, 0, 1e-15));
  EXPECT_TRUE(at::equal(run.wide(noise + 0.0), noise.to(at::kDouble)));
}

TEST_F(WideRuns, JudgesByRuling4) {
  WideRun run;
  at::Tensor eager;
  {
    const WideRun::Scope scope(run);
    torch::manual_seed(1);
    eager = torch::randn({16}).exp();
  }
  const double eps = 0x1p-23, largest = eager.max().item<double>();
  const double own = (eager.to(at::kDouble) - run.wide(eager)).abs().max().item<double>();
  const auto off_by = [&](double distance) {
    at::Tensor other = run.wide(eager);
    other[0] += distance;
    return other.to(at::kFloat);
  };
  EXPECT_TRUE(same_bits(eager, eager));
  EXPECT_TRUE(same_bits(eager, off_by(own + 15 * eps * largest)));
  const auto beyond = same_bits(eager, off_by(2 * own + 20 * eps * largest));
  EXPECT_FALSE(beyond);
  EXPECT_NE(std::string(beyond.message()).find("distance to float64"), std::string::npos);
  at::Tensor nan = eager.clone();
  nan[3] = NAN;
  EXPECT_FALSE(same_bits(eager, nan));
}

TEST_F(WideRuns, JudgesFloat64ByHowFarRoundingCarries) {
  WideRun run;
  at::Tensor plain, carried;
  {
    const WideRun::Scope scope(run);
    torch::manual_seed(1);
    plain = torch::rand({16}, at::kDouble);
    carried = plain * 1.0;
    for (int i = 0; i < 14; ++i) carried = 4 * carried * (1 - carried);  // doubles what it rounds
    plain = plain.sqrt();
  }
  EXPECT_TRUE(same_bits(plain, plain + 4 * 0x1p-52));
  EXPECT_FALSE(same_bits(plain, plain + 200 * 0x1p-52)) << run.largest() << " " << run.eps();
  EXPECT_TRUE(same_bits(carried, carried + 200 * 0x1p-52));
  EXPECT_FALSE(same_bits(carried, carried + 1e7 * 0x1p-52));
}

TEST(WideRunOnEager, DoesNothingWhereBitsArePromised) {
  test::EnvironmentVariable backend("TANDEM_BACKEND", "eager");
  WideRun run;
  const WideRun::Scope scope(run);
  const at::Tensor x = torch::ones({3}).add(1);
  EXPECT_FALSE(run.wide(x).defined());
  EXPECT_FALSE(same_bits(x, x + 1e-6));
}

}  // namespace
}  // namespace tandem::test
