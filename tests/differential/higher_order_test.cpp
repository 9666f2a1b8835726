/// Gradients of gradients through compiled calls, against eager to the third order.
#include "support/error_text.h"
#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/twins.h"
#include "tandem/tandem.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace tandem::test {
namespace {

using at::Tensor;
using torch::autograd::grad;

constexpr const char* kAnotherRun =
    "call: backward with create_graph=true traces the function again, and now it calls other ops "
    "than in the call, or the same on other operands\n  cause:  host code depends on something "
    "that "
    "has changed since\n  remedy: run the call and its backward in the same state of modules and "
    "variables";

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble).requires_grad_(); }

/// The gradient of the sum, to be differentiated again.
Tensor slope(const Tensor& y, const Tensor& x) {
  return grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

torch::nn::Sequential tanh_net(int64_t in, int64_t out) {
  torch::nn::Sequential net(torch::nn::Linear(in, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
                            torch::nn::Tanh(), torch::nn::Linear(8, out));
  net->to(torch::kDouble);
  return net;
}

void record_gradients(Twin& twin, const torch::nn::Sequential& net) {
  for (const auto& item : net->named_parameters())
    twin.record_sum("gradient of " + item.key(), item.value().grad());
}

TEST(HigherOrder, GradientPenalty) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Sequential critic = tanh_net(3, 1);
    auto score = twin.compile([critic](const Tensor& x) mutable { return critic->forward(x); });
    torch::optim::SGD optimizer(critic->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      const Tensor x = leaf({4, 3});
      const Tensor out = score(x);
      const Tensor penalty = (slope(out, x).norm(2, 1) - 1).pow(2).mean();
      (out.mean() + 10 * penalty).backward();
      record_gradients(twin, critic);
      optimizer.step();
    }
  });
}

/// The gradient of the tangent is one number, expanded and conjugated: kernels read a copy of it.
TEST(HigherOrder, ACopyIntoALazyConjugate) {
  expect_twins_agree([](Twin& twin) {
    auto copy = twin.compile([](const Tensor& x, const Tensor& y) { return y.copy_(x); });
    for (int step = 0; step < 3; ++step) {
      const Tensor x = torch::randn({}, at::kComplexFloat).requires_grad_();
      const Tensor y = torch::randn({1, 2}, at::kComplexFloat).conj();
      const Tensor tangent = torch::randn({1, 2}, at::kComplexFloat).requires_grad_();
      const Tensor out = copy(x, y);
      Tensor gradient;
      try {
        gradient = grad({out}, {x}, {tangent}, true, true)[0];
      } catch (const UserError&) {  // no copy of y has been kept
        EXPECT_EQ(step, 0);
      }
      if (step == 0) continue;
      twin.record("gradient", gradient);
      twin.record("gradient of the tangent",
                  grad({gradient}, {tangent}, {torch::ones({}, at::kComplexFloat)})[0]);
    }
  });
}

TEST(HigherOrder, HessianVectorProduct) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.sin() * x.prod(0)).exp().sum(); });
    const Tensor x = leaf({5}), v = torch::randn({5}, torch::kDouble);
    const Tensor gradient = slope(f(x), x);
    twin.record_sum("Hv", grad({gradient}, {x}, {v}, true)[0]);
    // The same by differentiating in the tangent.
    const Tensor t = torch::ones({}, torch::kDouble).requires_grad_();
    const Tensor g = grad({f(x)}, {x}, {t}, true, true)[0];
    twin.record("gradient by the tangent", grad({(g * v).sum()}, {t}, {}, true)[0]);
  });
}

/// u'' + u = 0 at random points.
TEST(HigherOrder, PhysicsLossOutside) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Sequential net = tanh_net(1, 1);
    auto u = twin.compile([net](const Tensor& x) mutable { return net->forward(x); });
    for (int step = 0; step < 3; ++step) {
      const Tensor x = leaf({6, 1});
      const Tensor value = u(x);
      const Tensor second = slope(slope(value, x), x);
      (second + value).pow(2).mean().backward();
      record_gradients(twin, net);
    }
  });
}

TEST(HigherOrder, PhysicsLossInside) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Sequential net = tanh_net(1, 1);
    auto loss = twin.compile([net](const Tensor& x) mutable {
      const Tensor value = net->forward(x);
      return (slope(slope(value, x), x) + value).pow(2).mean();
    });
    for (int step = 0; step < 3; ++step) {
      const Tensor x = leaf({6, 1});
      loss(x).backward();
      record_gradients(twin, net);
      twin.record("gradient of the points", x.grad());
    }
  });
}

/// Two inner steps on weights that stay differentiable.
TEST(HigherOrder, LearningToLearn) {
  expect_twins_agree([](Twin& twin) {
    const Tensor first = leaf({4, 1}), rate = leaf({});
    auto loss = twin.compile([](const Tensor& w, const Tensor& x, const Tensor& y) {
      return (x.matmul(w).tanh() - y).pow(2).mean();
    });
    const Tensor x = torch::randn({8, 4}, torch::kDouble), y = torch::randn({8, 1}, torch::kDouble);
    Tensor w = first;
    for (int inner = 0; inner < 2; ++inner) w = w - rate * slope(loss(w, x, y), w);
    const Tensor outer = loss(w, x, y);
    twin.record("loss", outer);
    outer.backward();
    twin.record("gradient of the first weights", first.grad());
    twin.record("gradient of the rate", rate.grad());
  });
}

TEST(HigherOrder, DropoutKeepsItsMask) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) {
      return torch::dropout(x * x * x, 0.5, /*train=*/true) * torch::rand_like(x) * x;
    });
    const Tensor x = leaf({32});
    for (int call = 0; call < 2; ++call) {
      Tensor order = f(x);
      for (int i = 0; i < 3; ++i) {
        twin.record("value", order);
        order = slope(order, x);
      }
      twin.record("the next draw", torch::rand({1}));
    }
  });
}

TEST(HigherOrder, DrawsFromANamedGenerator) {
  expect_twins_agree([](Twin& twin) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    auto f = twin.compile([](const Tensor& x, const at::Generator& from) {
      return x.pow(3) * at::rand({4}, from, at::TensorOptions().dtype(at::kDouble));
    });
    const Tensor x = leaf({4});
    twin.record("second order", slope(slope(f(x, generator), x), x));
    twin.record("the next draw", at::rand({2}, generator));
  });
}

/// Host code that autograd's own graph knows of and the recorded ops do not show.
struct Rounds : torch::autograd::Function<Rounds> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.round(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list tangents) {
    return {tangents[0]};
  }
};

TEST(HigherOrder, WhatAutogradWasToldCounts) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) {
      Tensor constant;
      {
        const torch::NoGradGuard no_grad;
        constant = x * 3;
      }
      Tensor hooked = x.sin();
      hooked.register_hook([](const Tensor& gradient) { return gradient * 2; });
      return Rounds::apply(x * 3).pow(2) * constant * hooked * x.detach() * x;
    });
    const Tensor x = leaf({5});
    Tensor order = f(x);
    for (int i = 0; i < 3; ++i) {
      order = slope(order, x);
      twin.record("order", order);
    }
  });
}

TEST(HigherOrder, GradientInAResult) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp(); });
    const Tensor x = leaf({4});
    const Tensor y = f(x);
    twin.record("of the gradient, in the result", slope(slope(y, x), y));
  });
}

TEST(HigherOrder, WithoutUseItIsAnOrdinaryBackward) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x * x).sum(); });
    const Tensor x = leaf({4});
    f(x).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    twin.record("gradient", x.grad().detach());
    x.mutable_grad().reset();
  });
}

TEST(HigherOrder, BufferThatNoGradientNeedsIsWrittenOnce) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::BatchNorm1d norm(3);
    norm->to(torch::kDouble);
    auto f = twin.compile([norm](const Tensor& x) mutable { return norm->forward(x).tanh(); });
    const Tensor x = leaf({6, 3});
    twin.record("second order", slope(slope(f(x), x).pow(2), x));
    twin.record("mean", norm->running_mean);
    twin.record("calls", norm->num_batches_tracked);
  });
}

TEST(HigherOrder, AWrittenArgumentIsKeptFromTheSecondTimeOn) {
  const OneThread one_thread;
  auto f = tandem::compile([](const Tensor& x) {
    const Tensor y = x.exp();
    x.mul_(2);
    return y * x;
  });
  const auto second = [&](const auto& function) {
    const Tensor w = torch::ones({3}, torch::kDouble).requires_grad_();
    const Tensor x = w * 1.5;
    return slope(slope(function(x), w), w);
  };
  EXPECT_EQ(test::error_text<UserError>([&] { second(f); }),
            "call: backward with create_graph=true needs user_input 0 as it was before the call, "
            "which writes it\n  remedy: run the step again: with Options::higher_order, from now "
            "on each call keeps a copy until its backward; or write the tensor outside the "
            "function");
  EXPECT_TRUE(same_bits(second(f), second([](const Tensor& x) {
                          const Tensor y = x.exp();
                          x.mul_(2);
                          return y * x;
                        })));
}

// The copy that is kept must be a leaf, too: the function switches its flag again.
TEST(HigherOrder, AnArgumentMayGiveUpItsGradientInside) {
  const auto program = [](const Tensor& x, const Tensor& w) {
    const Tensor y = x.exp() * w.exp();
    x.requires_grad_(false);
    return y;
  };
  const auto f = tandem::compile(program);
  const auto second = [](const auto& function, const Tensor& start) {
    const Tensor x = start.clone().requires_grad_(), w = start.clone().requires_grad_();
    slope(function(x, w), w).sum().backward();
    EXPECT_FALSE(x.requires_grad());
    return std::pair(x.grad(), w.grad());
  };
  const Tensor start = torch::randn({3}, torch::kDouble);
  for (int call = 0; call < 3; ++call) {  // nothing has to be copied
    const auto [x, w] = second(f, start);
    const auto [expected_x, expected_w] = second(program, start);
    EXPECT_TRUE(same_bits(x, expected_x));
    EXPECT_TRUE(same_bits(w, expected_w));
  }
}

TEST(HigherOrder, SwitchedOffItKeepsNoArguments) {
  const auto cube = [](const Tensor& x) { return ((x + 1) * (x + 1)).sum(); };
  auto with = tandem::compile(cube);
  auto without = tandem::compile(cube, {.higher_order = false});
  const auto alive_after_call = [](auto& f) {
    Tensor x = leaf({3});
    Tensor argument = x * 2;
    const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(
        argument.getIntrusivePtr());
    const Tensor y = f(argument);
    argument.reset();
    return !weak.expired();
  };
  EXPECT_TRUE(alive_after_call(with));
  EXPECT_FALSE(alive_after_call(without));
  const Tensor x = leaf({3});
  EXPECT_EQ(test::error_text<UserError>([&] { slope(without(x), x); }),
            "call: backward with create_graph=true needs the arguments of the call, which were not "
            "kept\n  remedy: leave Options::higher_order on; a graph that was lowered by itself "
            "has no gradients of gradients: compile the function");
  without(x).backward();  // the refusal has used nothing up
  EXPECT_TRUE(x.grad().defined());
}

TEST(HigherOrder, ArgumentsAreFreedByTheBackward) {
  auto f = tandem::compile([](const Tensor& x) { return ((x + 1) * (x + 1)).sum(); });
  const Tensor x = leaf({3});
  Tensor argument = x * 2;
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(
      argument.getIntrusivePtr());
  const Tensor y = f(argument);
  argument.reset();
  y.backward();
  EXPECT_TRUE(weak.expired());
}

TEST(HigherOrder, AnArgumentWrittenSinceIsEagersError) {
  auto f = tandem::compile([](const Tensor& x, const Tensor& w) { return (x + w).pow(3); });
  const Tensor x = torch::randn({3}, torch::kDouble), w = leaf({3});
  const Tensor y = f(x, w);
  x.add_(1);
  EXPECT_NE(test::error_text<c10::Error>([&] {
              slope(y, w);
            }).find("has been modified by an inplace operation"),
            std::string::npos);
  EXPECT_TRUE(grad({y.sum()}, {w})[0].defined()) << "the first order reads what was saved";
}

TEST(HigherOrder, TheFunctionMustBeTheOneThatWasCalled) {
  auto flag = std::make_shared<bool>(true);
  auto f = tandem::compile([flag](const Tensor& x) { return *flag ? x.sin() : x.cos() * 2; });
  const Tensor x = leaf({3});
  const Tensor y = f(x);
  *flag = false;
  EXPECT_EQ(test::error_text<UserError>([&] { slope(y, x); }), kAnotherRun);
  EXPECT_TRUE(same_bits(grad({y.sum()}, {x})[0], x.detach().cos()));
}

/// Differentiates twice what was called in one state of the host and is differentiated in another:
/// an error without effect, until the state is that of the call again. What was compiled then
/// serves in any state.
void expect_state_counts(const std::function<Tensor(const Tensor&, const Tensor&)>& function,
                         const std::function<void(bool)>& set_state, Options options = {}) {
  set_state(false);
  const auto f = tandem::compile(function, std::move(options));
  const Tensor a = leaf({4}), b = leaf({4});
  const auto second = [&](const Tensor& y) { return slope(slope(y, a), a); };
  const Tensor expected = second(function(a, b)), y = f(a, b);
  set_state(true);
  EXPECT_EQ(test::error_text<UserError>(
                [&] { y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true); }),
            kAnotherRun);
  EXPECT_FALSE(a.grad().defined());
  set_state(false);
  EXPECT_TRUE(same_bits(second(y), expected));
  set_state(true);
  EXPECT_TRUE(same_bits(second(y), expected));
}

TEST(HigherOrder, ANumberOfTheHostIsThatOfTheCall) {
  double number = 0;
  const auto set = [&](bool other) { number = other ? 5 : 2; };
  const auto program = [&](const Tensor& a, const Tensor&) { return a.pow(4) * number; };
  expect_state_counts(program, set);
  expect_state_counts(program, set, {.guard_on = [&] { return number; }});
}

TEST(HigherOrder, TheModeOfAModuleIsThatOfTheCall) {
  torch::nn::Dropout net;
  expect_state_counts(
      [&](const Tensor& a, const Tensor&) { return a.pow(4) * (net->is_training() ? 2 : 3); },
      [&](bool other) { net->train(!other); }, {.modules = {net.ptr()}});
}

TEST(HigherOrder, AConstantOfTheHostIsThatOfTheCall) {
  std::vector<double> numbers{1, 2, 3, 4};
  expect_state_counts(
      [&](const Tensor& a, const Tensor&) {
        return a.pow(4) * torch::tensor(numbers, torch::kDouble);
      },
      [&](bool other) { numbers[3] = other ? 5 : 4; });
}

TEST(HigherOrder, AClosedOverTensorIsThatOfTheCall) {
  const Tensor one = torch::randn({4}, torch::kDouble), two = torch::randn({4}, torch::kDouble);
  Tensor w;
  const auto set = [&](bool other) { w = other ? two : one; };
  const auto program = [&](const Tensor& a, const Tensor&) { return a.pow(4) * w; };
  expect_state_counts(program, set);
  set(false);
  expect_state_counts(program, set, {.closes_over = {&w}});
  // Both are known to the call.
  expect_state_counts([&](const Tensor& a, const Tensor&) { return one * two * a.pow(4) * w; },
                      set);
}

TEST(HigherOrder, WhichInputIsReadIsThatOfTheCall) {
  bool flag = false;
  const auto set = [&](bool other) { flag = other; };
  expect_state_counts([&](const Tensor& a, const Tensor& b) { return a.pow(3) * (flag ? a : b); },
                      set);
  expect_state_counts(
      [&](const Tensor& a, const Tensor& b) {
        const Tensor p = a.pow(3) + b, q = a.pow(3) - b;
        return flag ? p : q;
      },
      set);
  expect_state_counts(
      [&](const Tensor& a, const Tensor&) { return a.pow(3) * a.narrow(0, flag ? 1 : 0, 1); }, set);
}

TEST(HigherOrder, WhatAutogradWasToldIsThatOfTheCall) {
  bool flag = false;
  const auto set = [&](bool other) { flag = other; };
  expect_state_counts(
      [&](const Tensor& a, const Tensor&) {
        const Tensor cube = a.pow(3);
        const at::AutoGradMode mode(flag);
        const Tensor factor = a * 2;
        const at::AutoGradMode again(true);
        return cube * factor;
      },
      set);
  expect_state_counts(
      [&](const Tensor& a, const Tensor&) { return a.pow(3) * (flag ? a : a.detach()); }, set);
}

// Of several handles on one memory any will do, as in the first trace.
TEST(HigherOrder, AHandleOnTheDataOfATensorMayBeMadeAnew) {
  expect_twins_agree([](Twin& twin) {
    const Tensor w = leaf({4});
    auto f = twin.compile(
        [w](const Tensor& x) { return x.pow(3) * w.data() * (w.data() + w) * w.detach(); });
    const Tensor x = leaf({4});
    twin.record("second order", slope(slope(f(x), x), w));
  });
}

TEST(HigherOrder, TracesAreCounted) {
  auto f = tandem::compile([](const Tensor& x) { return x.sin(); });
  const Tensor x = leaf({3});
  EXPECT_EQ(f.stats().traces, 0);
  const Tensor y = f(x);
  EXPECT_EQ(f.stats().traces, 1);
  const Tensor first = slope(y, x);
  EXPECT_EQ(f.stats().traces, 2);
  slope(first, x);
  EXPECT_EQ(f.stats().traces, 3);
  slope(slope(f(x), x), x);
  EXPECT_EQ(f.stats().traces, 3) << "compiled once";
}

struct Tripled : torch::autograd::Function<Tripled> {
  static Tensor forward(torch::autograd::AutogradContext*, Tensor x) { return x * 3; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    return {g[0] * 3};
  }
};

// The function is given the closed-over tensor itself, whose history is the call's by then.
TEST(HigherOrder, OfACustomFunctionOfWhatTheCallRewritesAfterwards) {
  expect_twins_agree([](Twin& twin) {
    const Tensor x = leaf({3}), closed = x * 0.75;
    auto f = twin.compile([&](const Tensor& y) {
      const Tensor before = Tripled::apply(closed);
      closed.mul_(-1.5);
      return std::vector<Tensor>{before * 2, closed * 3 + y * y};
    });
    const Tensor y = leaf({3});
    const std::vector<Tensor> results = f(y);
    const std::vector<Tensor> tangents{leaf({3}), leaf({3})};
    const std::vector<Tensor> first = grad(results, {x, y}, tangents, true, /*create_graph=*/true);
    for (const Tensor& one : first) twin.record("gradient", one);
    const Tensor sum = first[0].sum() + first[1].sum();
    for (const Tensor& one : grad({sum}, {y, tangents[0], tangents[1]}))
      twin.record_sum("second", one);
  });
}

// copysign() gives zeros for the sign, which come from no tangent. An argument that is rewritten
// has a node of its own, with gradients of its own.
TEST(HigherOrder, ZerosOfAFormulaBesideARewrittenArgument) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& y, const Tensor& z) {
      x.mul_(2);
      return at::copysign(z, y);
    });
    const Tensor x = leaf({3}) * 2, y = leaf({3}), z = leaf({3}), tangent = leaf({3});
    const std::vector<Tensor> first = grad({f(x, y, z)}, {y, z, x}, {tangent}, true, true, true);
    for (const Tensor& one : first) twin.record("gradient", one);
  });
}

/// Two results, and a backward that is linear in its gradients, or multiplies them.
template <bool kLinear>
struct TwoResults : torch::autograd::Function<TwoResults<kLinear>> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;
  static Tensors forward(Context* context, Tensor x) {
    context->save_for_backward({x});
    return {x * 2, x * x};
  }
  static Tensors backward(Context* context, Tensors g) {
    const Tensor x = context->get_saved_variables()[0];
    return {(kLinear ? g[0] * 2 : g[0] * (1 + g[1])) + g[1] * x * 2};
  }
};

/// The product reads both results of the custom function, of which only one is a result.
template <bool kLinear>
std::vector<Tensor> result_and_product(const Tensor& x) {
  const std::vector<Tensor> two = TwoResults<kLinear>::apply(x);
  return {two[0], two[0] * two[1]};
}

TEST(HigherOrder, ALinearFormulaMayRunInTheCallAndPastIt) {
  auto f = tandem::compile(result_and_product<true>);
  const Tensor x = leaf({3});
  EXPECT_TRUE(
      same_bits(slope(slope(result_and_product<true>(x)[1], x), x), slope(slope(f(x)[1], x), x)));
}

// One run for each of two gradients is not the run for both.
TEST(HigherOrder, AFormulaThatIsNotLinearMustNotRunInTheCallAndPastIt) {
  auto f = tandem::compile(result_and_product<false>);
  const Tensor x = leaf({3});
  const Tensor first = slope(f(x)[1], x);
  EXPECT_TRUE(same_bits(slope(result_and_product<false>(x)[1], x), first));
  const std::string text = error_text<c10::Error>([&] { slope(first, x); });
  EXPECT_NE(
      text.find("joint: a gradient of a gradient leads to the formula of a custom function or "
                "hook (of torch::autograd::CppNode<"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find(") twice, through a result or argument of the compiled function and past it, "
                "and the formula is not certainly linear\n  remedy: compute the gradients of "
                "gradients inside the compiled function, or call the custom function outside"),
      std::string::npos)
      << text;
}

TEST(HigherOrder, AKernelThatFailsLeavesTheGeneratorWhereItWas) {
  auto f = tandem::compile([](const Tensor& x, const Tensor& i) {
    return torch::dropout(x.pow(3), 0.5, true).index_select(0, i);
  });
  const Tensor x = leaf({4});
  const Tensor i = torch::tensor({0, 1});
  const Tensor y = f(x, i);
  i.data_ptr<int64_t>()[1] = 99;  // no version counter sees it
  const Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_ANY_THROW(slope(y, x));
  EXPECT_TRUE(same_bits(at::detail::getDefaultCPUGenerator().get_state(), before));
}

TEST(HigherOrder, FromSeveralThreads) {
  const OneThread one_thread;
  auto f = tandem::compile([](const Tensor& x) { return x.sin().exp(); });
  const Tensor x = leaf({8});
  const Tensor expected = slope(slope(x.sin().exp(), x), x);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const OneThread alone;
      for (int k = 0; k < 5; ++k)
        right += static_cast<bool>(same_bits(expected, slope(slope(f(x), x), x)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 20);
}

}  // namespace
}  // namespace tandem::test
