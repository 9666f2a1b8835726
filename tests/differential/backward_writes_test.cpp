/// Hooks and custom functions that write inputs of a call in its backward: statistics, counters,
/// averages of gradients. Data and version counters are compared with eager after each step.
#include "support/error_text.h"
#include "support/twins.h"

#include <ATen/autocast_mode.h>

#include <functional>
#include <string>

namespace tandem::test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::grad;
using torch::autograd::variable_list;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// x * factor; in the backward the gradient is added to a tensor that it keeps beside what it
/// saves.
struct AddsGradient : torch::autograd::Function<AddsGradient> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& sum,
                        double factor) {
    context->saved_data["sum"] = sum;
    context->saved_data["factor"] = factor;
    return x * factor;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    context->saved_data["sum"].toTensor().add_(gradients[0]);
    return {gradients[0] * context->saved_data["factor"].toDouble(), Tensor(), Tensor()};
  }
};

/// x * w, of which the backward doubles w.
struct DoublesWhatItSaved : torch::autograd::Function<DoublesWhatItSaved> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w) {
    context->save_for_backward({w});
    return x * w;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    Tensor w = context->get_saved_variables()[0];
    const Tensor gradient = gradients[0] * w;
    w.mul_(2);
    return {gradient, Tensor()};
  }
};

/// Averages a gradient, and counts.
auto average_into(Tensor average, Tensor count) {
  return [average, count](const Tensor& g) {
    average.mul_(0.75).add_(g, 0.25);
    count.add_(1);
  };
}

void record_all(Twin& twin, const std::string& when, const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i)
    twin.record_tensor(when + ", tensor " + std::to_string(i), tensors[i]);
}

/// In the forward both are written, too.
auto counted_step() {
  return [](const Tensor& x, Tensor average, Tensor count) {
    count.add_(10);
    average.add_(x.detach().mean());
    const Tensor h = x.tanh() * 2;
    h.register_hook(average_into(average, count));
    return h.exp();
  };
}

struct Statistics {
  Tensor x = leaf({4}), average = torch::randn({4}), count = torch::zeros({}, torch::kLong);
  Tensors all() const { return {x, average, count}; }
};

TEST(BackwardWrites, ArgumentsThatTheForwardWritesToo) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(counted_step());
    const Statistics s;
    for (int i = 0; i < 3; ++i) {
      const Tensor y = f(s.x, s.average, s.count);
      record_all(twin, "after the call", s.all());
      y.sum().backward();
      record_all(twin, "after the backward", s.all());
    }
    f.expect_one_compile();
  });
}

TEST(BackwardWrites, BuffersThatTheFunctionClosesOver) {
  expect_twins_agree([](Twin& twin) {
    const Statistics s;
    const auto step = counted_step();
    const auto f =
        twin.compile([&s, step](const Tensor& x) { return step(x, s.average, s.count); });
    for (int i = 0; i < 3; ++i) {
      const Tensor y = f(s.x);
      record_all(twin, "after the call", s.all());
      y.sum().backward();
      record_all(twin, "after the backward", s.all());
    }
    f.expect_one_compile();
  });
}

// Each backward finds what the one before it has left, not what the call has.
TEST(BackwardWrites, AKeptGraphWritesAgain) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(counted_step());
    const Statistics s;
    const Tensor y = f(s.x, s.average, s.count);
    for (int i = 0; i < 3; ++i) {
      y.sum().backward({}, /*retain_graph=*/true);
      record_all(twin, "after the backward", s.all());
    }
    y.sum().backward();
    record_all(twin, "after the last backward", s.all());
    twin.record_error("once more", [&] { y.sum().backward(); });
  });
}

TEST(BackwardWrites, WhatTheCallerWritesInBetweenIsKept) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(counted_step());
    const Statistics s;
    for (int i = 0; i < 2; ++i) {
      const Tensor y = f(s.x, s.average, s.count);
      s.average.mul_(-3);
      s.count.fill_(100);
      y.sum().backward();
      record_all(twin, "after the backward", s.all());
    }
  });
}

TEST(BackwardWrites, SeveralCallsBeforeTheirBackwards) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(counted_step());
    const Statistics s;
    Tensors results;
    for (int i = 0; i < 4; ++i) results.push_back(f(s.x, s.average, s.count));
    for (const size_t i : {2u, 0u, 3u}) {  // one never comes
      results[i].sum().backward();
      record_all(twin, "after a backward", s.all());
    }
  });
}

TEST(BackwardWrites, ABackwardThatDoesNotComeByWritesNothing) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, const Tensor& z, Tensor average, Tensor count) {
      count.add_(1);
      const Tensor h = x.sin(), k = z.cos();
      h.register_hook(average_into(average, count));
      return std::pair{h * 2, k * 3};
    });
    const Statistics s;
    const Tensor z = leaf({4});
    const auto [first, second] = f(s.x, z, s.average, s.count);
    second.sum().backward({}, /*retain_graph=*/true);
    record_all(twin, "after another result", s.all());
    (first + second).sum().backward({}, /*retain_graph=*/true);
    record_all(twin, "after both", s.all());
    first.sum().backward();
    record_all(twin, "after the result", s.all());
  });
}

// Each of two hooks is run by some backwards only; they write one tensor, one after the other.
TEST(BackwardWrites, TwoHooksOnOneTensor) {
  const auto program = [](const Tensor& x, const Tensor& z, Tensor sum, Tensor count) {
    sum.add_(1);
    const Tensor h = x.sin(), k = z.cos();
    h.register_hook([sum, count](const Tensor& g) {
      sum.mul_(2).add_(g);
      count.add_(1);
    });
    k.register_hook([sum, count](const Tensor& g) {
      sum.add_(g * 5);
      count.add_(1).mul_(3);
    });
    return std::pair{h * k, k * 2};
  };
  for (const bool only_some : {false, true}) {
    expect_twins_agree([&](Twin& twin) {
      const auto f = twin.compile(program);
      const Statistics s;
      const Tensor z = leaf({4});
      const auto [first, second] = f(s.x, z, s.average, s.count);
      const auto run = [&](const std::string& what, const Tensor& of, const Tensors& in) {
        if (only_some) {
          for (const Tensor& g : grad({of.sum()}, in, {}, true, false, /*allow_unused=*/true))
            twin.record(what, g);
        } else {
          of.sum().backward({}, /*retain_graph=*/true);
        }
        record_all(twin, what, {s.average, s.count});
      };
      run("the first result in x", first, {s.x});
      run("the second result in z", second, {z});
      run("the first result in z", first, {z});
      run("the first result in both", first, {s.x, z});
      run("both results in z", first + second, {z});
    });
  }
}

// What it computes from a tensor and gives on is what the tensor holds by then.
TEST(BackwardWrites, AHookThatScalesByWhatItKeeps) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, Tensor scale) {
      scale.add_(0.5);
      const Tensor h = x.sin();
      h.register_hook([scale](const Tensor& g) {
        const Tensor scaled = g * scale;
        scale.copy_(g.abs() + scale);
        return scaled + scale;
      });
      return h * x;
    });
    const Tensor x = leaf({4}), scale = torch::rand({4});
    const Tensor y = f(x, scale);
    for (int i = 0; i < 2; ++i) {
      y.sum().backward({}, /*retain_graph=*/true);
      record_all(twin, "after the backward", {x, scale});
      scale.mul_(0.5);
    }
  });
}

TEST(BackwardWrites, ThroughAView) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, Tensor rows) {
      rows.mul_(2);
      const Tensor first = rows[0], h = x.sin();
      h.register_hook([first, rows](const Tensor& g) {
        first.add_(g);
        rows.select(0, 1).copy_(first * 2);
      });
      return h * 3;
    });
    const Tensor x = leaf({3}), rows = torch::randn({2, 3}), gaps = torch::randn({3, 4}).t();
    for (const Tensor& argument : {rows, gaps.slice(0, 0, 4, 2).slice(1, 0, 3)}) {
      const Tensor y = f(x, argument);
      for (int i = 0; i < 2; ++i) {
        y.sum().backward({}, /*retain_graph=*/true);
        record_all(twin, "after the backward", {x, argument});
      }
    }
  });
}

TEST(BackwardWrites, ByACustomFunction) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, Tensor sum) {
      sum.mul_(0.5);
      return AddsGradient::apply(AddsGradient::apply(x, sum, 3.0).sin(), sum, 2.0);
    });
    const Tensor x = leaf({3}), sum = torch::ones({3});
    for (int i = 0; i < 2; ++i) {
      const Tensor y = f(x, sum);
      y.sum().backward({}, /*retain_graph=*/true);
      record_all(twin, "after the backward", {x, sum});
      sum.sub_(7);
      y.sum().backward();
      record_all(twin, "after the second backward", {x, sum});
    }
  });
}

// Saved with save_for_backward it must not have been written before the backward, by nobody.
TEST(BackwardWrites, WhatIsSavedIsStillCompared) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, Tensor w) {
      w.add_(1);
      return DoublesWhatItSaved::apply(x, w);
    });
    const Tensor x = leaf({3}), w = torch::ones({3});
    Tensor y = f(x, w);
    y.sum().backward({}, /*retain_graph=*/true);
    record_all(twin, "after the backward", {x, w});
    twin.record_error("the write is found", [&] { y.sum().backward(); });
    record_all(twin, "after the error", {x, w});
    y = f(x, w);
    w.mul_(2);
    twin.record_error("the caller's write is found", [&] { y.sum().backward(); });
    record_all(twin, "after the second error", {x, w});
  });
}

// Eager's formula of the product reads w before the hook on x has written it; in the next backward
// it finds the write.
TEST(BackwardWrites, WhatALibraryFormulaHasSavedIsStillCompared) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, Tensor w) {
      const Tensor h = x.sin();
      h.register_hook([w](const Tensor& g) { w.add_(g); });
      return h * w;
    });
    const Tensor x = leaf({3}), w = torch::ones({3});
    Tensor y = f(x, w);
    y.sum().backward({}, /*retain_graph=*/true);
    record_all(twin, "after the backward", {x, w});
    twin.record_error("the write is found", [&] { y.sum().backward({}, true); });
    record_all(twin, "after the error", {x, w});
  });
}

// With a history of the call's own.
TEST(BackwardWrites, AnArgumentThatTheForwardRewrites) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, Tensor state) {
      state.mul_(x);
      const Tensor h = x.tanh();
      h.register_hook([state](const Tensor& g) { state.detach().add_(g); });
      return h * 2;
    });
    const Tensor x = leaf({3}), state = torch::ones({3});
    const Tensor y = f(x, state);
    for (int i = 0; i < 2; ++i) {
      y.sum().backward({}, /*retain_graph=*/true);
      record_all(twin, "after the backward", {x});
      twin.record("state", state);
      twin.record("version", state._version());
    }
  });
}

TEST(BackwardWrites, OutsideAnAutocastRegionAndInside) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(counted_step());
    const Statistics s;
    for (const bool inside : {false, true}) {
      const Tensor y = f(s.x, s.average, s.count);
      at::autocast::set_autocast_enabled(at::kCPU, inside);
      y.sum().backward();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      record_all(twin, "after the backward", s.all());
    }
  });
}

// A backward that raises half-way has run the hook while it was recorded.
TEST(BackwardWrites, BesideAFormulaThatRaises) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& x, const Tensor& z, Tensor count) {
      const Tensor h = x.sin();
      h.register_hook([count](const Tensor&) { count.add_(1); });
      const Tensor e = z.exp();
      const Tensor y = e * 2;
      e.detach().add_(1);
      return std::pair{h * 2, y};
    });
    const Tensor x = leaf({3}), z = leaf({3}), count = torch::zeros({});
    const auto [first, second] = f(x, z, count);
    first.sum().backward({}, /*retain_graph=*/true);
    record_all(twin, "after the backward", {x, z, count});
    twin.record_error("a saved tensor was written", [&] { second.sum().backward(); });
    record_all(twin, "after the error", {x, z, count});
  });
}

TEST(BackwardWrites, OtherSizesBySetDataAreAnError) {
  const auto f = tandem::compile(counted_step());
  const Statistics s;
  const Tensor y = f(s.x, s.average, s.count);
  s.average.set_data(torch::ones({5}));
  EXPECT_NE(
      error_text<UserError>([&] { y.sum().backward(); }).find("set_data() has given it other"),
      std::string::npos);
  EXPECT_TRUE(at::equal(s.average, torch::ones({5})));
  EXPECT_EQ(s.count.item<int64_t>(), 10) << "the backward has begun";
}

// ---- what stays refused ----

TEST(BackwardWrites, WithGradientsOfGradients) {
  const auto f = tandem::compile([](const Tensor& x, const Tensor& count) {
    const Tensor h = x.sin() * count.sum();
    h.register_hook([count](const Tensor&) { count.add_(1); });
    return h.exp();
  });
  const Tensor x = leaf({3}), count = torch::ones({2});
  const Tensor y = f(x, count);
  EXPECT_EQ(error_text<UnsupportedError>([&] { grad({y.sum()}, {x}, {}, true, true); }),
            "joint: the backward (a hook or custom function) writes argument 1 in a backward with "
            "create_graph\n  remedy: write it in the forward, or in a hook on a result of the "
            "compiled function");
  EXPECT_TRUE(at::equal(count, torch::ones({2})));
}

TEST(BackwardWrites, InMemoryOfAnotherArgument) {
  auto f = tandem::compile([](const Tensor& x, Tensor all, Tensor part) {
    part.add_(1);
    const Tensor h = x.sin();
    h.register_hook([all](const Tensor& g) { all.add_(g); });
    return h * part.sum();
  });
  const Tensor x = leaf({3}), all = torch::ones({3});
  EXPECT_NE(error_text<UnsupportedError>([&] { f(x, all, all.slice(0, 1)); })
                .find("the backward (a hook or custom function) writes argument 1, which shares "
                      "memory with another input"),
            std::string::npos);
  EXPECT_TRUE(at::equal(all, torch::ones({3})));
}

/// What the call of a function with this hook is refused with; it must leave the tensor alone.
std::string refusal_of(const std::function<void(const Tensor&)>& in_forward,
                       const std::function<void(const Tensor&)>& in_hook) {
  auto f = tandem::compile([&](const Tensor& x, const Tensor& state) {
    in_forward(state);
    const Tensor h = x.sin();
    h.register_hook([state, in_hook](const Tensor&) { in_hook(state); });
    return h * 2;
  });
  const Tensor x = leaf({3}), state = torch::ones({2, 3});
  const std::string text = error_text<UnsupportedError>([&] { f(x, state); });
  EXPECT_TRUE(at::equal(state, torch::ones({2, 3}))) << text;
  return text.substr(0, text.find('\n'));
}

TEST(BackwardWrites, OfATensorThatIsReshaped) {
  const std::string begin = "joint: the backward (a hook or custom function) writes argument 1, ";
  EXPECT_EQ(refusal_of([](const Tensor& state) { state.t_(); },
                       [](const Tensor& state) { state.add_(1); }),
            begin + "whose sizes, strides or memory the forward changes");
  EXPECT_EQ(refusal_of([](const Tensor&) {}, [](const Tensor& state) { state.add_(1).t_(); }),
            begin + "and changes its sizes");
  EXPECT_EQ(refusal_of([](const Tensor&) {}, [](const Tensor& state) { state.t_(); }),
            begin + "and changes its sizes");
}

// Eager calls the hook of one part also where a backward brings it no gradient.
TEST(BackwardWrites, InAHookThatMayGetNoGradient) {
  auto f = tandem::compile([](const Tensor& x, const Tensor& count) {
    const Tensors parts = x.exp().split(1);
    parts[0].register_hook([count](const Tensor&) { count.add_(1); });
    return std::pair{parts[0] * 2, parts[1].sin()};
  });
  const Tensor x = leaf({2}), count = torch::zeros({});
  const std::string text = error_text<UnsupportedError>([&] { f(x, count); });
  EXPECT_NE(text.find("joint: a hook on a result of "), std::string::npos) << text;
  EXPECT_NE(
      text.find("which sees whether its gradient is there, writes an input\n  remedy: write it "
                "in a custom function, which gets zeros"),
      std::string::npos)
      << text;
  EXPECT_EQ(count.item<float>(), 0);
}

TEST(BackwardWrites, FromAResultAndARewrittenArgument) {
  auto f = tandem::compile([](const Tensor& x, Tensor state, Tensor count) {
    const Tensor h = x.sin();
    h.register_hook([count](const Tensor&) { count.add_(1); });
    state.mul_(h);
    return h * 2;
  });
  const Tensor x = leaf({3}), state = torch::ones({3}), count = torch::zeros({});
  EXPECT_NE(error_text<UnsupportedError>([&] {
              f(x, state, count);
            }).find("both a result and an argument that the function rewrites lead there"),
            std::string::npos);
  EXPECT_EQ(count.item<float>(), 0);
}

}  // namespace
}  // namespace tandem::test
