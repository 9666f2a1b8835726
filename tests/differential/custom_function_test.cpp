/// Custom autograd functions on closed-over tensors: no dispatcher hook sees `apply`.
#include "support/error_text.h"
#include "support/like_eager.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// sin(x) * w, with gradients that are not the true ones.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x.sin() * w;
  }
  static variable_list backward(AutogradContext* context, variable_list tangents) {
    const variable_list saved = context->get_saved_variables();
    return {tangents[0] * saved[1] * 5, tangents[0] * saved[0] * 7};
  }
};

/// Never looks at w in the forward.
struct Ignores : torch::autograd::Function<Ignores> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const at::Tensor&) {
    return x.exp();
  }
  static variable_list backward(AutogradContext*, variable_list tangents) {
    return {tangents[0], tangents[0] * 3};
  }
};

/// Fills memory of its own making.
struct OwnMemory : torch::autograd::Function<OwnMemory> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    at::Tensor out = torch::empty(x.sizes(), x.options());
    at::mul_out(out, x, x);
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list tangents) {
    const at::Tensor x = context->get_saved_variables()[0];
    at::Tensor gradient = torch::empty(x.sizes(), x.options());
    at::mul_out(gradient, tangents[0], x * 11);
    return {gradient};
  }
};

/// Each run makes it anew.
Options closing_over(const at::Tensor& w) {
  Options options;
  options.closes_over.push_back(&w);
  return options;
}

TEST(CustomFunction, GradientsReachAClosedOverLeaf) {
  at::Tensor w;
  expect_like_eager(
      [&] {
        w = torch::randn({3}).requires_grad_(true);
        return Case{{torch::randn({3}).requires_grad_(true)}, {w}};
      },
      [&](const Tensors& in) { return Tensors{Product::apply(in[0], w)}; }, closing_over(w));
  // Used in ops too: both gradients are summed, in eager's order.
  expect_like_eager(
      [&] {
        w = torch::randn({3}).requires_grad_(true);
        return Case{{torch::randn({3}).requires_grad_(true)}, {w}};
      },
      [&](const Tensors& in) {
        return Tensors{Product::apply(in[0], w) + w * 0.3, Product::apply(w.exp(), w)};
      },
      closing_over(w));
}

TEST(CustomFunction, GradientsReachALeafThatNoOpHasSeen) {
  at::Tensor w;
  expect_like_eager(
      [&] {
        w = torch::randn({3}).requires_grad_(true);
        return Case{{torch::randn({3}).requires_grad_(true)}, {w}};
      },
      [&](const Tensors& in) { return Tensors{Ignores::apply(in[0], w)}; }, closing_over(w));
}

TEST(CustomFunction, GradientsReachTheHistoryOfAClosedOverTensor) {
  at::Tensor root, w;
  expect_like_eager(
      [&] {
        root = torch::randn({3}).requires_grad_(true);
        w = root * 2;
        return Case{{torch::randn({3}).requires_grad_(true)}, {root}};
      },
      [&](const Tensors& in) { return Tensors{Product::apply(in[0], w)}; }, closing_over(w));
}

TEST(CustomFunction, AHistoryThatNoOpHasSeenIsRefused) {
  const at::Tensor root = torch::randn({3}).requires_grad_(true), w = root * 2;
  auto step = tandem::compile([&](const at::Tensor& x) { return Ignores::apply(x, w); });
  const at::Tensor x = torch::randn({3}).requires_grad_(true);
  const std::string text = test::error_text<UnsupportedError>([&] { step(x); });
  EXPECT_NE(text.find("is given a closed-over tensor that is no leaf and that no op has seen"),
            std::string::npos)
      << text;
}

TEST(CustomFunction, ReturnsMemoryOfItsOwnMaking) {
  for (const int64_t size : {3, 100}) {  // below and above what always counts as written
    expect_like_eager([&] { return Case{{torch::randn({size}).requires_grad_(true)}, {}}; },
                      [](const Tensors& in) {
                        const at::Tensor y = OwnMemory::apply(in[0]);
                        return Tensors{y * 2};
                      });
  }
}

/// Adds its gradient to a sum that it is given, in the backward.
struct SumsGradients : torch::autograd::Function<SumsGradients> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& sum) {
    context->saved_data["sum"] = sum;
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list tangents) {
    context->saved_data["sum"].toTensor().add_(tangents[0]);
    return {tangents[0] * 2, at::Tensor()};
  }
};

TEST(CustomFunction, TheBackwardWritesAnArgumentOncePerBackward) {
  const auto run = [](const auto& function) {
    torch::manual_seed(1);
    const at::Tensor x = torch::randn({3}).requires_grad_(), sum = torch::zeros({3});
    const auto results = function(x, sum);
    EXPECT_EQ(sum._version(), 0) << "the forward has written";
    results[1].sum().backward({}, /*retain_graph=*/true);  // does not come by
    EXPECT_EQ(sum._version(), 0);
    const at::Tensor loss = results[0].pow(2).sum();
    loss.backward();
    EXPECT_EQ(sum._version(), 1);
    EXPECT_FALSE(sum.requires_grad());
    return Tensors{sum, x.grad()};
  };
  const auto program = [](const at::Tensor& x, const at::Tensor& sum) {
    return Tensors{SumsGradients::apply(x, sum), x.exp()};
  };
  const Tensors expected = run(program), found = run(tandem::compile(program));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], found[i])) << i;
}

/// x * w, with w in saved_data.
struct KeepsData : torch::autograd::Function<KeepsData> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->saved_data["w"] = w;
    return x * w;
  }
  static variable_list backward(AutogradContext* context, variable_list tangents) {
    return {tangents[0] * context->saved_data["w"].toTensor(), at::Tensor()};
  }
};

// docs/reference/differences.md
TEST(CustomFunction, WhatIsKeptInSavedDataIsCheckedLikeWhatIsSaved) {
  const auto program = [](const at::Tensor& x, const at::Tensor& w) {
    return KeepsData::apply(x, w);
  };
  const auto f = tandem::compile(program);
  const auto gradient = [](const auto& function, bool write) {
    const at::Tensor x = torch::ones({3}).requires_grad_(), w = torch::full({3}, 2.0);
    const at::Tensor y = function(x, w);
    if (write) w.fill_(5);
    y.sum().backward();
    return x.grad()[0].template item<float>();
  };
  EXPECT_EQ(gradient(program, false), 2);
  EXPECT_EQ(gradient(f, false), 2);
  EXPECT_EQ(gradient(program, true), 5) << "what it holds by then";
  EXPECT_NE(test::error_text<c10::Error>([&] {
              gradient(f, true);
            }).find("has been modified by an inplace operation"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::test
