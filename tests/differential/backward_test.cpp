/// Ways to run the backward of a call: kept graphs, twice, for some inputs only, from other
/// threads, with odd tangents, in anomaly mode. Each as in eager, error texts included.
#include "support/error_text.h"
#include "support/twins.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <thread>

namespace tandem::test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::grad;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

TEST(Backward, KeptGraphRunsAsOftenAsAsked) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x.tanh()).sum(); });
    const Tensor x = leaf({4, 3});
    const Tensor y = f(x);
    for (int i = 0; i < 3; ++i) {
      y.backward({}, /*retain_graph=*/true);
      twin.record("gradient", x.grad());
    }
    y.backward();
    twin.record("gradient", x.grad());
    twin.record_error("after the last", [&] { y.backward(); });
  });
}

TEST(Backward, SecondRunWithoutAKeptGraphIsEagersError) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& w) { return (x.exp() * w).sum(); });
    const Tensor x = leaf({4}), w = leaf({4});
    const Tensor y = f(x, w);
    y.backward();
    twin.record_error("backward", [&] { y.backward(); });
    twin.record_error("backward with a kept graph", [&] { y.backward({}, true); });
    twin.record_error("grad", [&] { grad({y}, {x}); });
    twin.record("gradient", x.grad());
  });
}

// Where a backward raises, only what raises or gets a gradient is connected: two rewritten
// arguments do not wait for each other.
TEST(Backward, RewrittenArgumentsInARowWhereAFormulaHasLostWhatItSaved) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& y) {
      x.mul_(0.5).add_((y.abs() + 1).digamma());
      return y.lerp_(x, 0.25) * 2;
    });
    const Tensor first = leaf({3}), second = leaf({3}), x = first * 2, y = second - 0.5;
    const Tensor result = f(x, y);
    twin.record("result", result);
    twin.record_error("backward", [&] { result.sum().backward({}, /*retain_graph=*/true); });
    twin.record("gradient of what raises nothing", grad({result.sum()}, {y}, {}, true)[0]);
  });
}

// Two results are two ways into one node: the first backward frees it for both.
TEST(Backward, SecondResultAfterTheGraphIsGoneIsEagersErrorIfTheyShareSavedValues) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) {
      const Tensor h = x.exp();
      return std::pair{h.sin().sum(), h.cos().sum()};
    });
    const Tensor x = leaf({4});
    const auto [a, b] = f(x);
    a.backward();
    twin.record_error("the other result", [&] { b.backward(); });
    const auto [c, d] = f(x);
    c.backward({}, /*retain_graph=*/true);
    d.backward();
    twin.record("gradient", x.grad());
  });
}

// Results that share nothing are graphs of their own in eager: each may run once.
TEST(Backward, ResultsThatShareNothingEachRunWithoutAKeptGraph) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& w) {
      return std::tuple{x.exp().sum(), (w.sin() * x.detach()).sum(), (x * w).sum()};
    });
    const Tensor x = leaf({4}), w = leaf({4});
    const auto [a, b, c] = f(x, w);
    a.backward();
    b.backward();
    c.backward();
    twin.record("gradient", x.grad());
    twin.record("gradient", w.grad());
    twin.record_error("a again", [&] { a.backward(); });
    twin.record_error("b again", [&] { b.backward(); });
    twin.record_error("c again", [&] { c.backward(); });
    twin.record_error("all at once", [&] { (a + b + c).backward(); });
  });
}

// Two formulas read one saved value; eager's graph frees it for neither before its turn.
TEST(Backward, ResultsThatShareAValueButNoFormulaEachRunWithoutAKeptGraph) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& w) {
      const Tensor h = x.tanh();
      return std::pair{(w * h.detach()).sum(), (h * 2).sum()};
    });
    const Tensor x = leaf({4}), w = leaf({4});
    for (bool first : {true, false}) {
      const auto [a, b] = f(x, w);
      (first ? a : b).backward();
      (first ? b : a).backward();
      twin.record("gradient", x.grad());
      twin.record("gradient", w.grad());
      twin.record_error("again", [&] { b.backward(); });
    }
  });
}

// Eager finds the graph freed only where it looks for a saved tensor.
TEST(Backward, GraphThatHasSavedNothingRunsAgain) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& y) { return (x * 2 + y).sum(); });
    const Tensor x = leaf({4}), y = leaf({4});
    const Tensor z = f(x, y);
    z.backward();
    twin.record_error("second", [&] { z.backward(); });
    twin.record("gradient", x.grad());
  });
}

TEST(Backward, SomeInputsAndSomeParametersOnly) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(
        net, [net](const Tensor& x, const Tensor& w) mutable { return (net(x) * w).tanh(); });
    const Tensor root = leaf({2, 4}), w = leaf({2, 3});
    const Tensor x = root * 2;  // no leaf
    const Tensor y = f(x, w);
    const auto run = [&](const char* what, const Tensors& inputs) {
      for (const Tensor& g : grad({y}, inputs, {torch::ones_like(y)}, /*retain_graph=*/true)) {
        twin.record(what, g);
      }
    };
    run("of an argument", {w});
    run("of a non-leaf argument", {x});
    run("of what the argument came from", {root});
    run("of a parameter", {net->bias});
    run("in another order", {net->weight, x, w});
    for (const Tensor& t : {root, w, net->weight, net->bias}) {
      twin.record("no .grad() is touched", t.grad());
    }
    y.sum().backward({}, /*retain_graph=*/true, /*create_graph=*/false, Tensors{net->bias});
    for (const Tensor& t : {root, w, net->weight, net->bias}) {
      twin.record(".grad() of the named inputs only", t.grad());
    }
  });
}

TEST(Backward, InputsThatTheResultDoesNotDependOn) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& unused) {
      return std::pair{x.exp().sum(), (unused * 2).sum()};
    });
    const Tensor x = leaf({4}), unused = leaf({4}), stranger = leaf({4});
    const Tensor y = f(x, unused).first;
    twin.record_error("not used", [&] { grad({y}, {stranger}, {}, true); });
    const Tensors gradients = grad({y}, {x, stranger}, {}, true, false, /*allow_unused=*/true);
    for (const Tensor& g : gradients) twin.record("gradient", g);
  });
}

// Of one node, whichever result is differentiated: an input of the other result gets nothing.
TEST(Backward, InputsOfAnotherResultAreUnused) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile(
        [](const Tensor& a, const Tensor& b) { return std::pair{a.exp(), (b * b).sin()}; });
    const Tensor a = leaf({4}), b = leaf({4});
    const auto [first, second] = f(a, b);
    const Tensors gradients = grad({first.sum()}, {a, b}, {}, true, false, /*allow_unused=*/true);
    for (const Tensor& g : gradients) twin.record("gradient", g);
    second.sum().backward();
    twin.record("gradient of a", a.grad());
    twin.record("gradient of b", b.grad());
  });
}

TEST(Backward, TangentsOfEveryLayout) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x * x).view({4, 3}); });
    const Tensor x = leaf({3, 4});
    const Tensor y = f(x);
    const Tensors tangents{torch::randn({4, 3}),
                           torch::randn({3, 4}).t(),
                           torch::randn({1, 3}).expand({4, 3}),
                           torch::randn({}).expand({4, 3}),
                           torch::randn({8, 6}).slice(0, 0, 8, 2).slice(1, 0, 6, 2),
                           torch::zeros({4, 3})};
    for (const Tensor& tangent : tangents) {
      const Tensor before = tangent.clone();
      twin.record("gradient", grad({y}, {x}, {tangent}, true)[0]);
      EXPECT_TRUE(same_bits(tangent, before)) << "the caller's tangent was written";
    }
    twin.record_error("wrong size", [&] { grad({y}, {x}, {torch::ones({3, 4})}, true); });
    twin.record_error("wrong dtype converts",
                      [&] { grad({y}, {x}, {torch::ones({4, 3}, at::kDouble)}, true); });
  });
}

// Eager converts the dtype of a tangent at the edge; so does the engine for the node of a call.
TEST(Backward, GradientThroughADtypeChangeAroundTheCall) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.sin(); });
    const Tensor x = leaf({4});
    f(x.to(at::kDouble)).to(at::kBFloat16).sum().backward();
    twin.record("gradient", x.grad());
  });
}

TEST(Backward, SomeTangentsUndefined) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile(
        [](const Tensor& a, const Tensor& b) { return std::tuple{a * b, a.exp(), b.sin()}; });
    const Tensor a = leaf({4}), b = leaf({4});
    for (int mask = 1; mask < 8; ++mask) {
      const auto [x, y, z] = f(a, b);
      Tensors roots;
      if (mask & 1) roots.push_back(x);
      if (mask & 2) roots.push_back(y);
      if (mask & 4) roots.push_back(z);
      const Tensors ones(roots.size(), torch::ones({4}));
      for (const Tensor& g : grad(roots, {a, b}, ones, false, false, /*allow_unused=*/true)) {
        twin.record("gradient", g);
      }
    }
  });
}

TEST(Backward, InAnotherThread) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x).sum(); });
    const Tensor x = leaf({8});
    Tensor y = f(x);
    std::thread([&] { y.backward(); }).join();
    twin.record("gradient", x.grad());
    std::thread([&] { y = f(x); }).join();  // and the other way round
    y.backward();
    twin.record("gradient", x.grad());
  });
}

TEST(Backward, TwoThreadsWithGraphsOfOneHandle) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x.cos()).sum(); });
    std::vector<Tensor> inputs;
    for (int i = 0; i < 2; ++i) inputs.push_back(leaf({16}));
    f(inputs[0]);
    std::vector<std::thread> threads;
    for (const Tensor& x : inputs) {
      threads.emplace_back([&f, x] {
        for (int i = 0; i < 50; ++i) f(x).backward();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& x : inputs) twin.record("gradient", x.grad());
  });
}

// The graph is kept, and both threads walk it at once.
TEST(Backward, TwoThreadsInOneGraph) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x.cos()).sum(); });
    const Tensor x = leaf({16});
    const Tensor y = f(x);
    Tensors gradients(2);
    std::vector<std::thread> threads;
    for (Tensor& gradient : gradients) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) gradient = grad({y}, {x}, {}, /*retain_graph=*/true)[0];
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& g : gradients) twin.record("gradient", g);
  });
}

TEST(Backward, AnomalyModeFindsNothingInAHealthyCall) {
  expect_twins_agree([](Twin& twin) {
    torch::autograd::DetectAnomalyGuard anomaly;
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x).sum(); });
    const Tensor x = leaf({4});
    for (int i = 0; i < 2; ++i) f(x).backward();  // the first call traces, in anomaly mode
    twin.record("gradient", x.grad());
  });
}

TEST(Backward, AnomalyModeRaisesWhereAGradientIsNotANumber) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.sqrt(); });
    const Tensor x = torch::tensor({-1.0f, 4.0f}).set_requires_grad(true);
    for (int i = 0; i < 2; ++i) {
      const Tensor y = f(x).sum();
      {
        torch::autograd::DetectAnomalyGuard anomaly;
        std::string text = "no error";
        try {
          y.backward();
        } catch (const std::exception& error) {
          text = error.what();
        }
        // Eager names its node SqrtBackward0.
        const std::string node = twin.is_compiled() ? "TandemBackward" : "SqrtBackward0";
        EXPECT_TRUE(
            text.starts_with("Function '" + node + "' returned nan values in its 0th output."))
            << text;
        twin.record("gradient", x.grad());
      }
      {
        torch::autograd::DetectAnomalyGuard anomaly(/*check_nan=*/false);
        f(x).sum().backward();
        twin.record("gradient", x.grad());
        x.mutable_grad().reset();
      }
    }
  });
}

TEST(Backward, AnomalyModeRaisesForNotANumberInTheTracingCall) {
  torch::autograd::DetectAnomalyGuard anomaly;
  auto f = tandem::compile([](const Tensor& x) { return x.sqrt().sum(); });
  const Tensor x = torch::tensor({-1.0f, 4.0f}).set_requires_grad(true);
  const Tensor y = f(x);
  EXPECT_ANY_THROW(y.backward());
  EXPECT_FALSE(x.grad().defined());
}

// The engine's checks must not end up in the graph: they would run in every call.
TEST(Backward, AnomalyModeLeavesNoTraceInTheGraph) {
  const auto graphs = [] {
    auto f = tandem::compile([](const Tensor& x) { return (x.exp() * x).sum(); });
    f(leaf({4}));
    const Entry entry = f.entries()[0];
    return ir::print(entry.forward()) + ir::print(entry.backward());
  };
  const std::string expected = graphs();
  torch::autograd::DetectAnomalyGuard anomaly;
  EXPECT_EQ(graphs(), expected);
}

TEST(Backward, UnderNoGradModeAndInferenceMode) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x).sum(); });
    const Tensor x = leaf({4});
    const Tensor y = f(x), z = f(x);
    {
      torch::NoGradGuard guard;
      y.backward();
      twin.record("gradient", x.grad());
      twin.record("requires_grad of the gradient", x.grad().requires_grad());
    }
    {
      c10::InferenceMode mode;
      twin.record_error("in inference mode", [&] { z.backward(); });
    }
    twin.record("gradient", x.grad().clone());
  });
}

// The engine steals a gradient that nobody else holds; ours must not be held by anybody.
TEST(Backward, GradientsOfTwoParametersNeverShareMemory) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& a, const Tensor& b) { return (a + b).sum(); });
    const Tensor a = leaf({4}), b = leaf({4});
    f(a, b).backward();
    {
      torch::NoGradGuard guard;
      a.grad().mul_(2);
    }
    twin.record("gradient of a", a.grad());
    twin.record("gradient of b", b.grad());
  });
}

TEST(Backward, TangentIsNotHandedOutAsAGradient) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& a, const Tensor& b) { return a + b; });
    const Tensor a = leaf({4}), b = leaf({4});
    const Tensor tangent = torch::ones({4});
    f(a, b).backward(tangent);
    {
      torch::NoGradGuard guard;
      a.grad().mul_(2);
    }
    twin.record("tangent", tangent);
    twin.record("gradient of b", b.grad());
  });
}

}  // namespace
}  // namespace tandem::test
