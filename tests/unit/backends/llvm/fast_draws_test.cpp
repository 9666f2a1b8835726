#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <utility>

// Random::fast: dropout with a generator of our own. Same distribution, reproducible from the
// seed, and one mask for the forward and the backward of a call.

namespace tandem {
namespace {

using at::Tensor;

Options fast() {
  Options options;
  options.backend = "llvm";
  options.random = Random::fast;
  return options;
}

Tensor dropped(const Tensor& x) { return torch::dropout(x.relu(), 0.25, /*train=*/true) * 1.5; }

TEST(FastDraws, AreReproducibleFromTheSeedAndDifferFromCallToCall) {
  auto compiled = compile(dropped, fast());
  const Tensor x = torch::rand({37, 65}) + 1;
  torch::manual_seed(5);
  const Tensor first = compiled(x), second = compiled(x);
  torch::manual_seed(5);
  EXPECT_TRUE(compiled(x).equal(first));
  EXPECT_TRUE(compiled(x).equal(second));
  EXPECT_FALSE(first.equal(second));
  EXPECT_EQ(compiled.stats().compiles, 1);
}

TEST(FastDraws, KeepAsManyElementsAsTheyShouldAndScaleThem) {
  const Tensor x = torch::rand({512, 1024}) + 1;
  const Tensor y = compile(dropped, fast())(x);
  const Tensor kept = y != 0;
  // Six standard deviations of a binomial distribution.
  const auto n = static_cast<double>(x.numel());
  EXPECT_NEAR(kept.sum().item<double>() / n, 0.75, 6 * std::sqrt(0.25 * 0.75 / n));
  EXPECT_TRUE(at::allclose(y, at::where(kept, x / 0.75 * 1.5, 0)));
  // No row or column is special, and neighbours know nothing of each other.
  const Tensor mask = kept.to(at::kDouble) - 0.75;
  EXPECT_LT(mask.mean(0).abs().max().item<double>(), 6 * std::sqrt(0.25 * 0.75 / 512));
  EXPECT_LT(mask.mean(1).abs().max().item<double>(), 6 * std::sqrt(0.25 * 0.75 / 1024));
  for (int64_t dim : {0, 1}) {
    const int64_t last = x.size(dim) - 1;
    const Tensor product = mask.narrow(dim, 0, last) * mask.narrow(dim, 1, last);
    EXPECT_LT(std::abs(product.mean().item<double>()), 6 * 0.25 * 0.75 / std::sqrt(n));
  }
}

TEST(FastDraws, TheBackwardHasTheMaskOfItsForward) {
  auto compiled = compile(dropped, fast());
  for (int call = 0; call < 3; ++call) {
    const Tensor x = (torch::rand({33, 128}) + 1).requires_grad_();
    const Tensor y = compiled(x);
    const Tensor other = compiled(torch::rand_like(x).requires_grad_());  // draws in between
    y.sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), at::where(y.detach() != 0, 1.5 / 0.75, 0.0)));
  }
}

TEST(FastDraws, NothingOfTheMaskIsSaved) {
  auto compiled = compile(dropped, fast());
  const Tensor x = (torch::rand({33, 128}) + 1).requires_grad_();
  compiled(x).sum().backward();
  for (const Saved& saved : compiled.entries().at(0).saved())
    EXPECT_LE(saved.bytes, x.nbytes()) << saved.name;
}

TEST(FastDraws, EdgesOfTheProbability) {
  const Tensor x = torch::rand({100}) + 1;
  const auto with = [&](double p) {
    return compile([p](const Tensor& t) { return torch::dropout(t, p, true) + 0.0; }, fast())(x);
  };
  EXPECT_TRUE(with(0).equal(x));
  EXPECT_TRUE(with(1).equal(torch::zeros_like(x)));
}

// The eager backend and generators of the user's own keep their streams.
TEST(FastDraws, WhatIsNotDrawnFastIsDrawnAsEagerDraws) {
  const Tensor x = torch::rand({64, 16}) + 1;
  Options options = fast();
  options.backend = "eager";
  torch::manual_seed(3);
  const Tensor expected = dropped(x);
  torch::manual_seed(3);
  EXPECT_TRUE(compile(dropped, options)(x).equal(expected));

  const auto normal = [](const Tensor& t) { return t + torch::randn_like(t); };
  torch::manual_seed(3);
  const Tensor noisy = normal(x);
  torch::manual_seed(3);
  EXPECT_TRUE(compile(normal, fast())(x).equal(noisy));
}

}  // namespace
}  // namespace tandem
