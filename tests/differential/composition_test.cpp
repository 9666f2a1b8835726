/// Compiled functions among other code: before, between and after eager ops, inside one another,
/// inside custom functions.
#include "support/models.h"
#include "support/twins.h"

namespace tandem::test {
namespace {

using at::Tensor;

constexpr int kSteps = 20;

TEST(Composition, CompiledBlockInsideEagerCode) {
  expect_training_agrees([](Twin& twin) {
    torch::nn::Linear before(5, 8), after(8, 3);
    Mlp middle(8, 8, 8, 0.1);
    auto block =
        twin.compile(middle, [middle](const Tensor& x) mutable { return middle->forward(x) + x; });
    torch::nn::Sequential all(before, middle, after);
    auto optimizer = twin.optimizer(all->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const Tensor x = torch::randn({6, 5}).set_requires_grad(true);
      const Tensor h = torch::tanh(before(x));
      const Tensor y = after(torch::relu(block(h)));
      y.square().mean().backward();
      optimizer->step();
      twin.record("gradient of x", x.grad());
      twin.record_state(*all);
    }
    block.expect_one_compile();
  });
}

// One block applied several times in a step: each call has a node of its own.
TEST(Composition, CompiledBlockAppliedRepeatedly) {
  expect_training_agrees([](Twin& twin) {
    torch::nn::Linear cell(4, 4);
    auto advance =
        twin.compile(cell, [cell](const Tensor& h) mutable { return torch::tanh(cell(h)); });
    auto optimizer = twin.optimizer(cell->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      Tensor h = torch::randn({2, 4});
      for (int t = 0; t < 3; ++t) h = advance(h);
      h.square().mean().backward();
      optimizer->step();
      twin.record_state(*cell);
    }
    // The state of the first step needs no gradient, later ones do.
    advance.expect_misses({"first call: no entry yet",
                           "entry 0: argument 0: requires_grad is true, compiled for false"});
  });
}

TEST(Composition, TwoCompiledFunctionsInARow) {
  expect_training_agrees([](Twin& twin) {
    torch::nn::Linear first(5, 4), second(4, 2);
    auto encode = twin.compile(first, [=](const Tensor& x) mutable { return first(x).sigmoid(); });
    auto decode =
        twin.compile(second, [=](const Tensor& h) mutable { return second(h).square().mean(); });
    torch::nn::Sequential all(first, second);
    auto optimizer = twin.optimizer(all->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      decode(encode(torch::randn({3, 5}))).backward();
      optimizer->step();
      twin.record_state(*all);
    }
    encode.expect_one_compile();
    decode.expect_one_compile();
  });
}

// The inner function is traced through as if it were plain code.
TEST(Composition, CompiledFunctionInsideACompiledFunction) {
  expect_training_agrees([](Twin& twin) {
    Mlp net(5, 8, 3, 0.2);
    auto inner = twin.compile(net, [net](const Tensor& x) mutable { return net->forward(x); });
    auto outer = twin.compile(
        net, [inner](const Tensor& x) { return inner(x).square().mean() + inner(x).mean(); });
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const Tensor loss = outer(torch::randn({6, 5}));
      loss.backward();
      optimizer->step();
      twin.record("loss", loss);
      twin.record_state(*net);
    }
    outer.expect_one_compile();
    if (twin.is_compiled()) {
      EXPECT_EQ(inner.handle.stats().traces, 0);
    }
  });
}

// The modules that only the inner function names are known to the outer one by their tensors; it
// must be told of train() and eval().
TEST(Composition, OuterFunctionNamesTheModuleOfTheInnerOne) {
  expect_twins_agree([](Twin& twin) {
    Mlp net(5, 8, 3, 0.5);
    auto inner = twin.compile(net, [net](const Tensor& x) mutable { return net->forward(x); });
    auto outer = twin.compile(net, [inner](const Tensor& x) { return inner(x) * 2; });
    const Tensor x = torch::randn({6, 5});
    for (bool training : {true, false, true}) {
      net->train(training);
      twin.record("result", outer(x));
    }
    outer.expect_misses({"first call: no entry yet",
                         "entry 0: the module is in eval mode, compiled in training mode"});
  });
}

/// Calls a function in the forward of a custom function and gives its gradient by hand.
struct Outer : torch::autograd::Function<Outer> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const std::function<Tensor(const Tensor&)>& inner) {
    context->saved_data["inner"] = inner(x);
    context->save_for_backward({x});
    return inner(x) * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list tangents) {
    return {tangents[0] * context->saved_data["inner"].toTensor(), Tensor()};
  }
};

TEST(Composition, CompiledFunctionInsideACustomFunction) {
  expect_twins_agree([](Twin& twin) {
    auto inner = twin.compile([](const Tensor& x) { return x.sin(); });
    const Tensor x = torch::randn({4}).set_requires_grad(true);
    const Tensor y = Outer::apply(x, inner);
    y.sum().backward();
    twin.record("y", y);
    twin.record("gradient", x.grad());
  });
}

// A backward that itself calls a compiled function and differentiates it.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const std::function<Tensor(const Tensor&)>& inner) {
    context->save_for_backward({x});
    inner_ = inner;
    return inner(x).detach().clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list tangents) {
    torch::AutoGradMode enable(true);
    const Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const Tensor y = inner_(x);
    return {torch::autograd::grad({y}, {x}, {tangents[0]})[0], Tensor()};
  }
  static inline std::function<Tensor(const Tensor&)> inner_;
};

TEST(Composition, BackwardThatCallsAndDifferentiatesACompiledFunction) {
  expect_twins_agree([](Twin& twin) {
    auto inner = twin.compile([](const Tensor& x) { return x.exp() * x; });
    for (int i = 0; i < 2; ++i) {
      const Tensor x = torch::randn({4}).set_requires_grad(true);
      const Tensor y = Reentrant::apply(x * 1.5, inner);
      inner(y).sum().backward();
      twin.record("gradient", x.grad());
    }
    Reentrant::inner_ = {};
  });
}

}  // namespace
}  // namespace tandem::test
