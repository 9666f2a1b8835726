/// Hooks on what enters and leaves a call: how often, in which order and with what they run is
/// recorded and compared with eager.
#include "support/twins.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::test {
namespace {

namespace autograd = torch::autograd;
using at::Tensor;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// A hook that records its gradient and returns nothing.
auto watch(Twin& twin, std::string what) {
  return [&twin, what](const Tensor& g) { twin.record("hook on " + what, g); };
}

/// A hook that records its gradient and replaces it.
auto scale(Twin& twin, std::string what, double factor) {
  return [&twin, what, factor](const Tensor& g) {
    twin.record("hook on " + what, g);
    return g * factor;
  };
}

TEST(Hooks, OnLeavesNonLeavesResultsAndParameters) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x, const Tensor& w) mutable {
      return std::pair{net(x).tanh(), (x * w).sum()};
    });
    const Tensor root = leaf({2, 4}), w = leaf({2, 4});
    const Tensor x = root * 2;
    root.register_hook(watch(twin, "root"));
    x.register_hook(watch(twin, "non-leaf argument"));
    w.register_hook(watch(twin, "leaf argument"));
    net->weight.register_hook(watch(twin, "weight"));
    for (int i = 0; i < 2; ++i) {
      const auto [y, z] = f(x, w);
      y.register_hook(watch(twin, "first result"));
      z.register_hook(watch(twin, "second result"));
      (y.sum() + z * 3).backward({}, /*retain_graph=*/true);
      for (const Tensor& t : {root, w, net->weight, net->bias}) twin.record("gradient", t.grad());
    }
    twin.sort_records();  // results of one call are one node: their hooks run together
  });
}

TEST(Hooks, ThatChangeTheGradient) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).tanh(); });
    const Tensor root = leaf({2, 4});
    const Tensor x = root * 2;
    x.register_hook(scale(twin, "argument", 3));
    net->bias.register_hook(scale(twin, "bias", 5));
    const Tensor y = f(x);
    y.register_hook(scale(twin, "result", 7));
    y.sum().backward();
    for (const Tensor& t : {root, net->weight, net->bias}) twin.record("gradient", t.grad());
  });
}

// Several on one tensor run in the order in which they came; one may go again.
TEST(Hooks, InOrderAndRemoved) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp(); });
    const Tensor x = leaf({4});
    const Tensor y = f(x);
    y.register_hook(scale(twin, "result, first", 2));
    const unsigned second = y.register_hook(scale(twin, "result, second", 10));
    y.register_hook(scale(twin, "result, third", 3));
    x.register_hook(scale(twin, "argument, first", 2));
    x.register_hook(watch(twin, "argument, second"));
    y.sum().backward({}, /*retain_graph=*/true);
    y.remove_hook(second);
    y.sum().backward();
    twin.record("gradient", x.grad());
  });
}

// A hook registered between the calls sits on the same leaf, whatever the entry has cached.
TEST(Hooks, OnAParameterRegisteredBetweenCalls) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).sum(); });
    const Tensor x = torch::randn({2, 4});
    f(x).backward();
    const unsigned hook = net->weight.register_hook(scale(twin, "weight", 2));
    const Tensor loss = f(x);
    loss.backward();
    net->weight.remove_hook(hook);
    f(x).backward();
    twin.record("gradient", net->weight.grad());
  });
}

TEST(Hooks, RegisteredBetweenForwardAndBackward) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x); });
    const Tensor root = leaf({2, 4});
    const Tensor x = root * 1;
    const Tensor y = f(x);
    x.register_hook(scale(twin, "argument", 2));
    net->weight.register_hook(scale(twin, "weight", 3));
    y.register_hook(scale(twin, "result", 4));
    y.sum().backward();
    twin.record("gradient", root.grad());
    twin.record("gradient", net->weight.grad());
  });
}

TEST(Hooks, OnGraphsForOneInputOnly) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& a, const Tensor& b) { return (a * b).sin(); });
    const Tensor a = leaf({4}), b = leaf({4});
    a.register_hook(scale(twin, "a", 2));
    b.register_hook(scale(twin, "b", 3));
    const Tensor y = f(a, b);
    y.register_hook(watch(twin, "result"));
    twin.record("gradient", autograd::grad({y.sum()}, {a})[0]);
  });
}

TEST(Hooks, OnAResultThatLeadsToNoInput) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) {
      const Tensor inner = torch::full({4}, 3.0, torch::requires_grad());
      return std::vector<Tensor>{x.exp(), inner.sin()};
    });
    const Tensor x = leaf({4});
    const std::vector<Tensor> results = f(x);
    results[1].register_hook(watch(twin, "result"));
    const Tensor y = (results[0] * results[1] * results[1]).sum();
    const Tensor first = autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    twin.record("gradient", first);
    first.sum().backward({}, /*retain_graph=*/true);
    twin.record("second gradient", x.grad());
    y.backward();
    twin.record("gradients", x.grad());
  });
}

TEST(Hooks, OnAResultThatIsAViewOfAnArgument) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return std::pair{x.t(), x.exp()}; });
    const Tensor root = leaf({2, 3});
    const Tensor x = root * 2;
    const auto [view, fresh] = f(x);
    view.register_hook(scale(twin, "view", 2));
    fresh.register_hook(scale(twin, "fresh", 3));
    x.register_hook(watch(twin, "argument"));
    (view.sum() + fresh.sum()).backward();
    twin.record("gradient", root.grad());
    twin.sort_records();  // views are made after the call, and so come before it in the backward
  });
}

// One node has all results of a call: as in eager for ops with several results, hooks on those that
// the loss does not use, and on inputs that only those need, get an undefined gradient.
TEST(Hooks, OnAResultThatTheLossDoesNotUseGetAnUndefinedGradient) {
  auto f =
      tandem::compile([](const Tensor& a, const Tensor& b) { return std::pair{a * 2, b * 3}; });
  const Tensor a = leaf({4}), b = leaf({4});
  const auto [first, second] = f(a, b);
  std::vector<bool> defined;
  second.register_hook([&](const Tensor& g) { defined.push_back(g.defined()); });
  b.register_hook([&](const Tensor& g) { defined.push_back(g.defined()); });
  second.retain_grad();
  first.sum().backward();
  EXPECT_EQ(defined, (std::vector<bool>{false, false}));
  EXPECT_TRUE(same_bits(a.grad(), torch::full({4}, 2.0f)));
  EXPECT_FALSE(b.grad().defined());
  EXPECT_FALSE(second.grad().defined());
}

TEST(Hooks, RetainedGradientsOfArgumentsAndResults) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return std::pair{x.exp(), x.sin()}; });
    const Tensor root = leaf({4});
    const Tensor x = root * 2;
    x.retain_grad();
    const auto [y, z] = f(x);
    y.retain_grad();
    twin.record("retains_grad", y.retains_grad());
    twin.record("retains_grad", z.retains_grad());
    for (int i = 0; i < 2; ++i) {
      (y * 3 + z).sum().backward({}, /*retain_graph=*/true);
      twin.record("gradient of the root", root.grad());
      twin.record("gradient of the argument", x.grad());
      twin.record("gradient of the result", y.grad());
    }
  });
}

// retain_grad sees the gradient after the hooks, whenever they were registered.
TEST(Hooks, RetainedGradientBesideHooks) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp(); });
    const Tensor x = leaf({4});
    const Tensor y = f(x);
    y.retain_grad();
    y.register_hook(scale(twin, "result", 2));
    y.sum().backward();
    twin.record("retained", y.grad());
    twin.record("gradient", x.grad());
  });
}

struct CountingPreHook : autograd::FunctionPreHook {
  explicit CountingPreHook(Twin& t) : twin(t) {}
  autograd::variable_list operator()(const autograd::variable_list& tangents) override {
    for (const Tensor& t : tangents) twin.record("tangent before the node", t);
    autograd::variable_list changed;
    for (const Tensor& t : tangents) changed.push_back(t.defined() ? t * 2 : t);
    return changed;
  }
  Twin& twin;
};

struct CountingPostHook : autograd::FunctionPostHook {
  explicit CountingPostHook(Twin& t) : twin(t) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients,
                                     const autograd::variable_list& tangents) override {
    for (const Tensor& g : gradients) twin.record("gradient after the node", g);
    for (const Tensor& t : tangents) twin.record("tangent after the node", t);
    autograd::variable_list changed;
    for (const Tensor& g : gradients) changed.push_back(g.defined() ? g * 3 : g);
    return changed;
  }
  Twin& twin;
};

// One op inside, so that eager has one node, too.
TEST(Hooks, OnTheNodeOfAResult) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& a, const Tensor& b) { return a * b; });
    const Tensor a = leaf({4}), b = leaf({4});
    const Tensor y = f(a, b);
    y.grad_fn()->add_pre_hook(std::make_unique<CountingPreHook>(twin));
    y.grad_fn()->add_post_hook(std::make_unique<CountingPostHook>(twin));
    y.backward(torch::randn({4}));
    twin.record("gradient of a", a.grad());
    twin.record("gradient of b", b.grad());
  });
}

struct PostAccumulate : autograd::PostAccumulateGradHook {
  PostAccumulate(Twin& t, std::string w) : twin(t), what(std::move(w)) {}
  void operator()(const autograd::Variable& tensor) override {
    twin.record("accumulated " + what, tensor.grad());
    if (what == "weight") {  // the optimizer in the backward: step, then free the gradient
      torch::NoGradGuard guard;
      tensor.mutable_grad().mul_(-0.1);
      tensor.data().add_(tensor.grad());
      tensor.mutable_grad().reset();
    }
  }
  Twin& twin;
  std::string what;
};

TEST(Hooks, AfterTheGradientWasAccumulated) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    for (const auto& item : net->named_parameters()) {
      autograd::impl::set_post_acc_grad_hooks(item.value(),
                                              std::make_unique<PostAccumulate>(twin, item.key()));
    }
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).tanh().sum(); });
    for (int i = 0; i < 3; ++i) {
      f(torch::randn({2, 4})).backward();
      twin.record_state(*net);
    }
    twin.sort_records();  // gradients of one call are ready at once
  });
}

// The AccumulateGrad node is the parameter's own, alive as long as somebody holds it.
TEST(Hooks, OnTheAccumulatorOfAParameter) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).sum(); });
    const auto accumulator = autograd::impl::grad_accumulator(net->weight);
    accumulator->add_post_hook(std::make_unique<CountingPostHook>(twin));
    for (int i = 0; i < 2; ++i) f(torch::randn({2, 4})).backward();
    twin.record("gradient", net->weight.grad());
  });
}

// A hook that runs a compiled function, and its backward, inside the engine.
TEST(Hooks, ThatCallCompiledFunctions) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp(); });
    const Tensor x = leaf({4});
    x.register_hook([&](const Tensor& g) {
      const Tensor inner = g.detach().clone().set_requires_grad(true);
      {
        torch::AutoGradMode enable(true);
        f(inner).sum().backward();
      }
      return inner.grad() + g;
    });
    for (int i = 0; i < 2; ++i) f(x).sum().backward();
    twin.record("gradient", x.grad());
  });
}

TEST(Hooks, ThatThrowLeaveTheNextBackwardAlone) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp(); });
    const Tensor x = leaf({4});
    bool angry = true;
    x.register_hook([&](const Tensor& g) {
      TORCH_CHECK(!angry, "the hook refuses");
      return g;
    });
    const Tensor y = f(x).sum();
    twin.record_error("first", [&] { y.backward({}, /*retain_graph=*/true); });
    angry = false;
    y.backward();
    twin.record("gradient", x.grad());
  });
}

}  // namespace
}  // namespace tandem::test
