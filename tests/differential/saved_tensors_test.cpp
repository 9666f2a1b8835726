/// What the graph of a call holds on to, and what happens when somebody writes to it before the
/// backward: eager's error with eager's text, or eager's result.
#include "support/allocated_bytes.h"
#include "support/error_text.h"
#include "support/twins.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <functional>
#include <regex>

namespace tandem::test {
namespace {

using at::Tensor;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// A result of a call comes from the call's node; eager names the op's.
std::string without_node_name(const std::string& text) {
  return std::regex_replace(text, std::regex("(which is output [0-9]+ of )[A-Za-z0-9]+"),
                            "$1<node>");
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(SavedTensors, LeafWrittenBeforeTheBackward) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& w) { return (x * w).sum(); });
    const Tensor x = leaf({4}), w = leaf({4});
    const Tensor y = f(x, w);
    {
      torch::NoGradGuard guard;
      w.add_(1);
    }
    twin.record_error("backward", [&] { y.backward(); });
    twin.record("gradient", x.grad());
  });
}

TEST(SavedTensors, ArgumentWithoutGradientWrittenBeforeTheBackward) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& t) { return (x * t).sum(); });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const Tensor y = f(x, t);
    t.add_(1).mul_(2);
    twin.record_error("backward", [&] { y.backward(); });
  });
}

// The text names the node that the tensor comes from now, which is outside the call.
TEST(SavedTensors, NonLeafWrittenBeforeTheBackward) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x * x).sum(); });
    const Tensor root = leaf({4});
    Tensor x = root * 2;
    const Tensor y = f(x);
    x.mul_(3);
    twin.record_error("backward", [&] { y.backward(); });
  });
}

// Eager does not come to the nodes of the first result.
TEST(SavedTensors, OnlyWhatLeadsToTheGradientThatIsAskedForIsLookedAt) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile(
        [](const Tensor& x, const Tensor& y) { return std::vector<Tensor>{x.exp(), y.exp()}; });
    const Tensor x = leaf({4}), y = leaf({4}), one = torch::ones({4});
    const std::vector<Tensor> results = f(x, y);
    results[0].detach().add_(1);
    const auto ask = [&](std::vector<Tensor> of, const Tensor& in) {
      const std::vector<Tensor> tangents(of.size(), one);
      return torch::autograd::grad(of, {in}, tangents, /*retain_graph=*/true,
                                   /*create_graph=*/false, /*allow_unused=*/true)[0];
    };
    twin.record("of both in y", ask(results, y));
    twin.record("of the first in y", ask({results[0]}, y));
    twin.record("of both in x", without_node_name(error_of([&] { ask(results, x); })));
    twin.record("of the first in x", without_node_name(error_of([&] { ask({results[0]}, x); })));
    twin.record("of the second in x", ask({results[1]}, x));
    // What was not looked at is not freed either.
    twin.record_error("without a kept graph", [&] {
      torch::autograd::grad({results[1]}, {y}, {one});
      torch::autograd::grad({results[1]}, {y}, {one});
    });
  });
}

TEST(SavedTensors, WrittenThroughAViewAndThroughDetach) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& t) { return (x * t).sum(); });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const Tensor a = f(x, t);
    t.slice(0, 1, 2).zero_();
    twin.record_error("through a view", [&] { a.backward(); });
    const Tensor b = f(x, t);
    t.detach().add_(1);
    twin.record_error("through detach", [&] { b.backward(); });
    const Tensor c = f(x, t);
    t.data().add_(1);  // eager does not notice, and uses the new data
    twin.record_error("through data", [&] { c.backward(); });
    twin.record("gradient", x.grad());
  });
}

TEST(SavedTensors, WrittenButNotNeeded) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile(
        [](const Tensor& x, const Tensor& t) { return (x + t).sum() + (x * 2).sum(); });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const Tensor y = f(x, t);
    t.add_(1);
    {
      torch::NoGradGuard guard;
      x.add_(1);
    }
    twin.record_error("backward", [&] { y.backward(); });
    twin.record("gradient", x.grad());
  });
}

// Two results, and only one of them needs what was written.
TEST(SavedTensors, WrittenButNeededByAnotherResult) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile(
        [](const Tensor& x, const Tensor& t) { return std::pair{(x * t).sum(), x.exp().sum()}; });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const auto [a, b] = f(x, t);
    t.add_(1);
    twin.record_error("the one that does not", [&] { b.backward({}, /*retain_graph=*/true); });
    twin.record("gradient", x.grad());
    twin.record_error("the one that does", [&] { a.backward(); });
    twin.record("gradient", x.grad());
  });
}

TEST(SavedTensors, ResultWrittenBeforeTheBackward) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp(); });  // its backward reads it
    const Tensor x = leaf({4});
    Tensor y = f(x);
    y.add_(1);
    const std::string text = error_of([&] { y.sum().backward(); });
    EXPECT_NE(text, "no error");
    twin.record("written in place", without_node_name(text));
    Tensor z = f(x);
    z.detach().zero_();
    twin.record("through detach", without_node_name(error_of([&] { z.sum().backward(); })));
    EXPECT_NE(
        text.find(twin.is_compiled() ? "which is output 0 of Tandem" : "which is output 0 of Exp"),
        std::string::npos)
        << text;
  });
}

TEST(SavedTensors, ResultWrittenThatTheBackwardDoesNotRead) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.sin(); });
    const Tensor x = leaf({4});
    Tensor y = f(x);
    y.add_(1).mul_(2);
    (y * y).sum().backward();
    twin.record("gradient", x.grad());
    Tensor z = f(x);
    z.slice(0, 0, 2).zero_();
    z.sum().backward();
    twin.record("gradient", x.grad());
  });
}

// A view inside the function of something outside: eager holds the view, whose version is shared.
TEST(SavedTensors, ViewsInsideTheFunctionOfWhatIsWritten) {
  using Body = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, Body>> bodies{
      {"t", [](const Tensor& x, const Tensor& t) { return x.mm(t.t()); }},
      {"select", [](const Tensor& x, const Tensor& t) { return x * t.select(0, 1); }},
      {"expand", [](const Tensor& x, const Tensor& t) { return x * t[0].expand({4, 4}); }},
      {"reshape", [](const Tensor& x, const Tensor& t) { return x.view(-1) * t.reshape(-1); }},
      {"detach", [](const Tensor& x, const Tensor& t) { return x * t.detach(); }},
      {"to", [](const Tensor& x, const Tensor& t) { return x * t.to(at::kFloat); }}};
  for (const auto& [name, body] : bodies) {
    SCOPED_TRACE(name);
    expect_twins_agree([&](Twin& twin) {
      auto f = twin.compile(body);
      const Tensor x = leaf({4, 4}), t = torch::randn({4, 4});
      for (int i = 0; i < 2; ++i) {
        const Tensor y = f(x, t).sum();
        t.mul_(2);
        twin.record("raises", error_of([&] { y.backward(); }) != "no error");
      }
      f(x, t).sum().backward();
      twin.record("gradient", x.grad());
    });
  }
}

// What eager keeps is the source, not the tensor that it was written into.
TEST(SavedTensors, SourceOfAWriteToAnotherArgument) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& source, const Tensor& target) {
      target.copy_(source);
      return (x * source).sum();
    });
    const Tensor x = leaf({4}), source = torch::randn({4}), target = torch::zeros({4});
    const Tensor y = f(x, source, target);
    target.add_(1);
    y.backward();
    twin.record("gradient", x.grad());
    const Tensor z = f(x, source, target);
    source.add_(1);
    twin.record_error("backward", [&] { z.backward(); });
  });
}

// A copy inside is not affected, however the original is written.
TEST(SavedTensors, CopiesInsideTheFunctionOfWhatIsWritten) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& t) {
      return (x * t.clone()).sum() + (x * t.to(at::kDouble)).sum().to(at::kFloat);
    });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const Tensor y = f(x, t);
    t.zero_();
    y.backward();
    twin.record("gradient", x.grad());
  });
}

// The result shares memory with what the backward reads: a view of the saved value.
TEST(SavedTensors, ResultThatIsAViewOfASavedValueWritten) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.exp().view({2, 2}); });
    const Tensor x = leaf({4});
    const Tensor y = f(x);
    y.detach().add_(1);
    twin.record("raises", error_of([&] { y.sum().backward(); }) != "no error");
    const Tensor z = f(x);
    z.sum().backward();
    twin.record("gradient", x.grad());
  });
}

// libtorch's C++ optimizers write through data(), which no counter sees: the backward then reads
// the new weights, in eager and here. No biases where a backend would add them again.
TEST(SavedTensors, OptimizerStepBetweenForwardAndBackward) {
  expect_training_agrees([](Twin& twin) {
    const auto linear = [](int64_t from, int64_t to) {
      return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(!backend_rounds()));
    };
    torch::nn::Sequential net(linear(4, 3), linear(3, 2));
    auto f = twin.compile(
        net, [net](const Tensor& x) mutable { return net->forward(x).square().mean(); });
    auto optimizer = twin.optimizer(net->parameters());
    const Tensor x = torch::randn({2, 4});
    f(x).backward();
    const Tensor loss = f(x);
    optimizer->step();
    twin.record("raises", error_of([&] { loss.backward(); }) != "no error");
    twin.record_state(*net);
  });
}

// Eager holds the transposed view of the weight and says so; the call holds the weight.
TEST(SavedTensors, WeightWrittenByHandBetweenForwardAndBackward) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).sum(); });
    const Tensor x = leaf({2, 4});
    const Tensor loss = f(x);
    {
      torch::NoGradGuard guard;
      net->weight.add_(1);
    }
    const std::string text = error_of([&] { loss.backward(); });
    EXPECT_NE(
        text.find(twin.is_compiled() ? "[CPUFloatType [3, 4]] is at version 2; expected version 1"
                                     : "[CPUFloatType [4, 3]], which is output 0 of "),
        std::string::npos)
        << text;
    twin.record("gradient", x.grad());
  });
}

// One layer whose weight the backward does not read: eager lets the step pass, and so must we.
TEST(SavedTensors, OptimizerStepThatNoBackwardReads) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).sum(); });
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Tensor x = torch::randn({2, 4});
    const Tensor first = f(x), second = f(x);
    first.backward();
    optimizer.step();
    second.backward();
    optimizer.step();
    twin.record_state(*net);
  });
}

TEST(SavedTensors, ArgumentDetachedInPlaceBetween) {
  expect_twins_agree([](Twin& twin) {
    auto reads = twin.compile([](const Tensor& x) { return (x * x).sum(); });
    auto does_not = twin.compile([](const Tensor& x) { return (x * 2).sum(); });
    const Tensor root = leaf({4});
    {
      Tensor x = root * 2;
      const Tensor y = reads(x);
      x.detach_();
      twin.record_error("read by the backward", [&] { y.backward(); });
    }
    {
      Tensor x = root * 2;
      const Tensor y = does_not(x);
      x.detach_();
      twin.record_error("not read", [&] { y.backward(); });
      twin.record("requires_grad", x.requires_grad());
    }
    twin.record("gradient", root.grad());
  });
}

// The data of a parameter may be exchanged between forward and backward: a new version counter is
// no write.
TEST(SavedTensors, DataOfAParameterExchangedBetween) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& w) { return (x * w).sum(); });
    const Tensor x = leaf({4}), w = leaf({4});
    const Tensor y = f(x, w);
    w.set_data(torch::randn({4}));
    twin.record_error("backward", [&] { y.backward(); });
    twin.record("gradient", x.grad());
  });
}

// What eager has saved of a view stays in the memory of that time; what it has saved of the tensor
// itself is read as it is by then.
TEST(SavedTensors, DataExchangedUnderViews) {
  using Program = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<Program> programs = {
      [](const Tensor& x, const Tensor& w) { return x * w; },
      [](const Tensor& x, const Tensor& w) { return x * w.t(); },
      [](const Tensor& x, const Tensor& w) { return x.mm(w); },
      [](const Tensor& x, const Tensor& w) { return torch::linear(x, w); },
      [](const Tensor& x, const Tensor& w) { return x.matmul(w.t()).tanh(); },
      [](const Tensor&, const Tensor& w) { return w * w; },
      [](const Tensor&, const Tensor& w) { return w.reshape(-1) * w.reshape(-1); },
      [](const Tensor& x, const Tensor& w) { return (x.view(-1) * w.t().reshape({-1})).exp(); },
      [](const Tensor& x, const Tensor& w) { return x.select(0, 1) * w.select(1, 0); },
  };
  const std::vector<std::function<Tensor()>> data = {
      [] { return torch::full({3, 3}, 300.); },
      [] { return torch::randn({3, 3}).t(); },
      [] { return torch::randn({2, 3, 3}).select(0, 1); },
  };
  for (size_t p = 0; p < programs.size(); ++p) {
    for (size_t d = 0; d < data.size(); ++d) {
      for (const bool closed_over : {false, true}) {
        SCOPED_TRACE("program " + std::to_string(p) + ", data " + std::to_string(d) +
                     (closed_over ? ", closed over" : ""));
        expect_twins_agree([&](Twin& twin) {
          const Program program = programs[p];
          const Tensor x = leaf({3, 3}), w = leaf({3, 3});
          auto open =
              twin.compile([program](const Tensor& a, const Tensor& b) { return program(a, b); });
          auto closed = twin.compile([program, w](const Tensor& a) { return program(a, w); });
          // Twice: what one call keeps for the next must not be taken for what that one found.
          for (int call = 0; call < 3; ++call) {
            x.mutable_grad() = Tensor();
            w.mutable_grad() = Tensor();
            const Tensor y = closed_over ? closed(x) : open(x, w);
            const Tensor other = closed_over ? closed(x) : open(x, w);
            if (call < 2) w.set_data(data[d]());
            twin.record_error("backward", [&] { y.sum().backward(); });
            twin.record("gradient of x", x.grad());
            twin.record("gradient of w", w.grad());
            if (call < 1) w.set_data(torch::randn({3, 3}));
            twin.record_error("backward", [&] { other.sum().backward(); });
            twin.record("gradient of x", x.grad());
            twin.record("gradient of w", w.grad());
          }
        });
      }
    }
  }
}

// The first product reads the new data and the second one the old.
TEST(SavedTensors, DataExchangedUnderWhatIsReadInBothWays) {
  expect_twins_agree([](Twin& twin) {
    const Tensor x = leaf({3, 3}), w = torch::randn({3, 3});
    auto f = twin.compile([w](const Tensor& a) { return a * w + (a * w.t()).exp(); });
    for (int call = 0; call < 2; ++call) {
      const Tensor y = f(x);
      w.set_data(torch::randn({3, 3}));
      y.sum().backward();
      twin.record("gradient", x.grad());
    }
  });
}

// Only such a backward traces the function again.
TEST(SavedTensors, ABackwardAfterSetDataTracesWhereItMust) {
  const Tensor x = leaf({3, 3}), w = torch::randn({3, 3});
  auto one_way = compile([w](const Tensor& a) { return a * w; });
  auto both_ways = compile([w](const Tensor& a) { return a * w + (a * w.t()).exp(); });
  for (auto* f : {&one_way, &both_ways}) {
    (*f)(x).sum().backward();
    const Tensor y = (*f)(x);
    w.set_data(torch::randn({3, 3}));
    y.sum().backward();
  }
  EXPECT_EQ(one_way.stats().traces, 1);
  EXPECT_EQ(both_ways.stats().traces, 2);
}

// It would have to be traced again, and the call has kept nothing for that.
TEST(SavedTensors, DataExchangedWithoutHigherOrder) {
  Options options;
  options.higher_order = false;
  const Tensor x = leaf({3, 3}), w = torch::randn({3, 3});
  auto f = compile([w](const Tensor& a) { return a * w + (a * w.t()).exp(); }, options);
  const Tensor y = f(x);
  w.set_data(torch::randn({3, 3}));
  EXPECT_EQ(error_text<UserError>([&] { y.sum().backward(); }),
            "call: a backward after set_data() needs the arguments of the call, which were not "
            "kept\n"
            "  remedy: leave Options::higher_order on; a graph that was lowered by itself has no "
            "gradients of gradients: compile the function");
  EXPECT_FALSE(x.grad().defined());
}

TEST(SavedTensors, SizesExchangedUnderViews) {
  for (const bool closed_over : {false, true}) {
    expect_twins_agree([&](Twin& twin) {
      const Tensor x = leaf({3, 3}), w = torch::randn({3, 3});
      auto open = twin.compile([](const Tensor& a, const Tensor& b) { return a.mm(b.t()); });
      auto closed = twin.compile([w](const Tensor& a) { return a.mm(w.t()); });
      const Tensor y = closed_over ? closed(x) : open(x, w);
      w.set_data(torch::randn({2, 5}, torch::kDouble));
      twin.record_error("backward", [&] { y.sum().backward(); });
      twin.record("gradient", x.grad());
    });
  }
}

// Eager's formulas would raise by themselves, or not; kernels rely on sizes.
TEST(SavedTensors, SizesExchangedUnderWhatIsReadAsItIs) {
  const Tensor x = leaf({4}), w = torch::randn({4});
  auto scale = compile([w](const Tensor& a) { return (a * w).sum(); });
  const Tensor y = scale(x);
  w.set_data(torch::randn({2}));
  EXPECT_EQ(error_text<UserError>([&] { y.backward(); }),
            "call: the backward reads lifted 0, and set_data() has given it other sizes or another "
            "dtype since the call\n"
            "  compiled: f32[4]\n"
            "  now:      f32[2]\n"
            "  remedy:   run the backward before set_data()");
  EXPECT_FALSE(x.grad().defined());
}

TEST(SavedTensors, GradientsOfGradientsAfterDataWasExchanged) {
  expect_twins_agree([](Twin& twin) {
    const Tensor x = leaf({3, 3}), w = leaf({3, 3});
    auto product = twin.compile([w](const Tensor& a) { return (a.mm(w.t()).exp() * w); });
    const Tensor y = product(x).sum();
    w.set_data(torch::randn({3, 3}));
    const auto first = torch::autograd::grad({y}, {x, w}, {}, true, true);
    const auto second = torch::autograd::grad({(first[0] * first[1]).sum()}, {x, w});
    twin.record("first", first[1]);
    twin.record("second in x", second[0]);
    twin.record("second in w", second[1]);
  });
}

TEST(SavedTensors, DataExchangedBeforeTheGradientsOfGradients) {
  expect_twins_agree([](Twin& twin) {
    const Tensor x = leaf({3, 3}), w = leaf({3, 3});
    auto product = twin.compile([w](const Tensor& a) { return (a.mm(w.t()).exp() * w); });
    const Tensor y = product(x).sum();
    const auto first = torch::autograd::grad({y}, {x}, {}, true, true);
    w.set_data(torch::randn({3, 3}));
    twin.record_error("backward", [&] { first[0].sum().backward(); });
    twin.record("gradient of x", x.grad());
    twin.record("gradient of w", w.grad());
  });
}

// How it lay when the function found it nobody has kept.
TEST(SavedTensors, DataExchangedOfWhatTheCallHasReshaped) {
  const Tensor x = leaf({3, 3}), w = torch::randn({3, 3});
  auto f = compile([w](const Tensor& a) {
    w.t_();
    return a * w;
  });
  const Tensor y = f(x);
  w.set_data(torch::randn({3, 3}));
  EXPECT_EQ(error_text<UserError>([&] { y.sum().backward(); }),
            "call: a backward after set_data() needs lifted 0 as it was in the call, and "
            "set_data() has given it other memory since\n"
            "  remedy: run the backward before set_data()");
  EXPECT_FALSE(x.grad().defined());
}

// The memory that a parameter had lives as long as in eager.
TEST(SavedTensors, ExchangedMemoryIsFreedWithTheGraph) {
  const Tensor x = leaf({3, 3}), w = leaf({3, 3});
  auto product = compile([w](const Tensor& a) { return a.mm(w.t()); });
  Tensor y = product(x).sum();
  const c10::weak_intrusive_ptr<c10::StorageImpl> found = w.storage().getWeakStorageImpl();
  w.set_data(torch::randn({3, 3}));
  EXPECT_FALSE(found.expired());
  y.backward();
  EXPECT_TRUE(found.expired());
}

TEST(SavedTensors, RequiresGradSwitchedBetween) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& w) { return (x * w).sum(); });
    const Tensor x = leaf({4}), w = leaf({4});
    const Tensor y = f(x, w);
    w.requires_grad_(false);
    twin.record_error("backward", [&] { y.backward(); });
    twin.record("gradient", x.grad());
    twin.record("gradient", w.grad());
  });
}

TEST(SavedTensors, TextInAnomalyMode) {
  expect_twins_agree([](Twin& twin) {
    torch::autograd::DetectAnomalyGuard anomaly;
    auto f = twin.compile([](const Tensor& x, const Tensor& t) { return (x * t).sum(); });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const Tensor y = f(x, t);
    t.add_(1);
    twin.record_error("backward", [&] { y.backward(); });
  });
}

// An error is no use of the graph: put right what was wrong, and it runs.
TEST(SavedTensors, FailedBackwardLeavesTheGraphAsItWas) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x, const Tensor& t) { return (x.exp() * t).sum(); });
    const Tensor x = leaf({4}), t = torch::randn({4});
    const Tensor y = f(x, t);
    t.add_(1);
    twin.record_error("first", [&] { y.backward(); });
    twin.record_error("second", [&] { y.backward(); });
    twin.record("gradient", x.grad());
  });
}

TEST(SavedTensors, MemoryIsFreedWithTheResult) {
  auto f = tandem::compile([](const Tensor& x) { return x.exp().sin().exp().sum(); });
  const Tensor x = leaf({1000});
  f(x);
  const AllocatedBytes bytes;
  {
    const Tensor y = f(x);
    EXPECT_GE(bytes.now(), 4000);  // with min_cut; twice that without
  }
  EXPECT_EQ(bytes.now(), 0);
}

TEST(SavedTensors, MemoryIsFreedByTheBackwardUnlessTheGraphIsKept) {
  auto f = tandem::compile([](const Tensor& x) { return x.exp().sin().exp().sum(); });
  const Tensor x = leaf({1000});
  f(x).backward();
  const AllocatedBytes bytes;
  Tensor y = f(x);
  const int64_t held = bytes.now();
  y.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(bytes.now(), held);
  y.backward();
  EXPECT_LE(bytes.now(), 64);  // the loss itself
  y.reset();
  EXPECT_EQ(bytes.now(), 0);
}

// Of two results, the first backward frees what only it reads, the second the rest.
TEST(SavedTensors, MemoryIsFreedResultByResult) {
  auto f = tandem::compile([](const Tensor& x, const Tensor& w) {
    const Tensor h = x.exp();
    return std::pair{(w.exp() * h.detach()).sum(), h.sin().sum()};
  });
  const Tensor x = leaf({1000}), w = leaf({1000});
  f(x, w);
  x.mutable_grad() = torch::zeros({1000});  // accumulated in place
  w.mutable_grad() = torch::zeros({1000});
  const AllocatedBytes bytes;
  auto [a, b] = f(x, w);
  EXPECT_GE(bytes.now(), 2 * 4000);
  a.backward();
  EXPECT_LT(bytes.now(), 2 * 4000);
  EXPECT_GE(bytes.now(), 4000);
  b.backward();
  EXPECT_LE(bytes.now(), 2 * 64);  // the results themselves
}

// The graph of a call holds no more than eager's graph of the same ops.
TEST(SavedTensors, NoMoreMemoryThanEager) {
  const auto body = [](const Tensor& x) { return (x.exp() * x.sin()).tanh().sum(); };
  const auto held_by = [](const auto& function) {
    const Tensor x = leaf({1000});
    function(x);
    const AllocatedBytes bytes;
    const Tensor y = function(x);
    return bytes.now();
  };
  EXPECT_LE(held_by(tandem::compile(body)), held_by(body));
}

TEST(SavedTensors, ArgumentsDieWithTheGraph) {
  auto f = tandem::compile([](const Tensor& x, const Tensor& t) { return (x * t).sum(); });
  const Tensor x = leaf({4});
  Tensor t = torch::randn({4});
  c10::weak_intrusive_ptr<c10::TensorImpl> weak(t.getIntrusivePtr());
  Tensor y = f(x, t);
  t.reset();
  EXPECT_FALSE(weak.expired());  // the backward will read it
  y.backward();
  EXPECT_TRUE(weak.expired());
}

TEST(SavedTensors, SeveralGraphsAliveAndFreedInAnyOrder) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return (x.exp() * x).sum(); });
    std::vector<Tensor> inputs, results;
    for (int i = 0; i < 4; ++i) {
      inputs.push_back(leaf({4}));
      results.push_back(f(inputs.back()));
    }
    results[1].backward();
    results[0].reset();
    results[3].backward();
    results[2].backward();
    for (const Tensor& x : inputs) twin.record("gradient", x.grad());
  });
}

TEST(SavedTensors, GraphOutlivesTheHandleAndReset) {
  expect_twins_agree([](Twin& twin) {
    const Tensor x = leaf({4});
    Tensor y, z;
    {
      auto f = twin.compile([](const Tensor& t) { return (t.exp() * t).sum(); });
      y = f(x);
      if (f.handle) f.handle.reset();
      z = f(x);
    }
    y.backward();
    z.backward();
    twin.record("gradient", x.grad());
  });
}

}  // namespace
}  // namespace tandem::test
