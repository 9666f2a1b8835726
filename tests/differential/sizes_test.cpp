/// One compiled function, calls of many sizes: what they compute is eager's, and one entry serves
/// every size at which the function records the same ops.
#include "support/models.h"
#include "support/same_bits.h"
#include "support/twins.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
using T = at::Tensor;

/// Says nothing of an eager twin.
template <class Function>
void expect_entries(const Function& function, int64_t entries) {
  if (!function.handle) return;
  const Stats stats = function.handle.stats();
  EXPECT_EQ(stats.entries, entries) << function.handle.report();
  EXPECT_EQ(stats.compiles, entries);
  EXPECT_EQ(static_cast<int64_t>(stats.misses.size()), entries);
  EXPECT_EQ(stats.eager_calls, 0);
}

template <class Function>
void expect_at_most(const Function& function, int64_t entries) {
  if (!function.handle) return;
  const Stats stats = function.handle.stats();
  EXPECT_LE(stats.entries, entries) << function.handle.report();
  EXPECT_EQ(stats.compiles, stats.entries);
  EXPECT_EQ(stats.eager_calls, 0);
}

/// A block written as people write it: sizes are plain integers.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width = 8, int64_t head_count = 2)
      : heads(head_count),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}

  T forward(const T& x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    std::vector<T> parts = qkv(norm1(x)).chunk(3, -1);
    for (T& part : parts) part = part.view({batch, length, heads, width / heads}).transpose(1, 2);
    T scores = parts[0].matmul(parts[1].transpose(2, 3)) /
               std::sqrt(static_cast<double>(width) / static_cast<double>(heads));
    const T later = torch::ones({length, length}, torch::kBool).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<float>::infinity());
    const T mixed =
        torch::softmax(scores, -1).matmul(parts[2]).transpose(1, 2).reshape({batch, length, width});
    const T y = x + out(mixed);
    return y + down(torch::gelu(up(norm2(y))));
  }

  int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Block);

std::vector<std::vector<int64_t>> random_shapes(size_t count, std::vector<int64_t> least,
                                                std::vector<int64_t> most) {
  std::mt19937 random(7);
  std::vector<std::vector<int64_t>> shapes;
  while (shapes.size() < count) {
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (size_t i = 0; i < least.size(); ++i)
      shape.push_back(std::uniform_int_distribution<int64_t>(least[i], most[i])(random));
  }
  return shapes;
}

TEST(Sizes, FortyShapesOfATransformerBlock) {
  expect_twins_agree([](Twin& twin) {
    Block block;
    auto step = twin.compile(block, [&](const T& x) { return block(x).pow(2).mean(); });
    for (const auto& shape : random_shapes(40, {2, 2}, {6, 13})) {
      const T x = torch::randn({shape[0], shape[1], 8}).requires_grad_();
      const T loss = step(x);
      loss.backward();
      twin.record("loss", loss);
      twin.record("gradient", x.grad());
    }
    twin.record_state(*block);
    expect_at_most(step, 2);
  });
}

TEST(Sizes, FortyShapesOfAConvNet) {
  expect_twins_agree([](Twin& twin) {
    ConvNet net;
    auto step =
        twin.compile(net, [&](const T& x, const T& y) { return F::cross_entropy(net(x), y); });
    for (const auto& shape : random_shapes(40, {2, 8, 8}, {5, 17, 17})) {
      const T x = torch::randn({shape[0], 3, shape[1], shape[2]});
      const T loss = step(x, torch::randint(10, {shape[0]}));
      loss.backward();
      twin.record("loss", loss);
    }
    twin.record_state(*net);
    expect_at_most(step, 2);
  });
}

// Nothing special is done for them: they record other ops, or they do not.
TEST(Sizes, ZeroAndOneAreSizesToo) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(3, 2);
    auto step = twin.compile(net, [&](const T& x, const T& y) { return (net(x) * y).sum(); });
    for (int64_t n : {4, 1, 0, 5, 1, 0}) {
      for (int64_t m : {n, int64_t{1}}) {
        const T x = torch::randn({n, 3}).requires_grad_();
        const T loss = step(x, torch::randn({m, 2}));
        loss.backward();
        twin.record("loss", loss);
        twin.record("gradient", x.grad());
      }
    }
    twin.record_state(*net);
    if (twin.is_compiled()) EXPECT_EQ(step.handle.stats().eager_calls, 0);
  });
}

TEST(Sizes, AnEpochWithASmallLastBatchAndEvaluation) {
  expect_training_agrees([](Twin& twin) {
    Mlp net(6, 16, 3, 0.3);
    auto optimizer = twin.optimizer(net->parameters());
    auto loss =
        twin.compile(net, [&](const T& x, const T& y) { return F::cross_entropy(net(x), y); });
    const auto batch = [&](int64_t n) {
      return loss(torch::randn({n, 6}), torch::randint(3, {n}));
    };
    for (int epoch = 0; epoch < 3; ++epoch) {
      net->train();
      for (int64_t n : {16, 16, 16, 5}) {
        optimizer->zero_grad();
        const T value = batch(n);
        value.backward();
        optimizer->step();
        twin.record("loss", value);
      }
      net->eval();
      const torch::NoGradGuard guard;
      for (int64_t n : {32, 32, 9}) twin.record("loss of evaluation", batch(n));
    }
    twin.record_state(*net);
    expect_entries(loss, 2);
    if (!twin.is_compiled()) return;
    EXPECT_EQ(loss.handle.stats().variants, 4);
    EXPECT_EQ(loss.handle.stats().traces, 4);
  });
}

TEST(Sizes, ABranchOnASizeStaysRight) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const T& x) {
      return x.size(1) % 4 == 0 ? x.sin().sum(1)
                                : (x * static_cast<double>(x.size(1))).cos().sum(0);
    });
    for (int64_t n = 2; n < 22; ++n) {
      const T x = torch::randn({3, n}).requires_grad_();
      const T y = f(x);
      y.sum().backward();
      twin.record("result", y);
      twin.record("gradient", x.grad());
    }
    expect_entries(f, 2);
  });
}

TEST(Sizes, IntegersAndNumbersThatChange) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const T& x, int64_t n, double scale, bool sine) {
      const T y = x.narrow(1, 0, n) * scale + static_cast<double>(n);
      return sine ? y.sin() : y.cos();
    });
    for (bool sine : {true, false}) {
      for (int64_t n = 1; n < 6; ++n) {
        const T x = torch::randn({2, 6}).requires_grad_();
        const T y = f(x, n, 0.25 * static_cast<double>(n * n), sine);
        y.sum().backward();
        twin.record("result", y);
        twin.record("gradient", x.grad());
      }
    }
    expect_entries(f, 2);
    if (twin.is_compiled()) EXPECT_EQ(f.handle.stats().variants, 10);
  });
}

TEST(Sizes, ANumberThatComesBack) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const T& x) { return std::pair(x * 2, x.size(0) + x.size(1)); });
    for (int64_t n : {3, 5, 3, 7, 5}) {
      const auto [y, sum] = f(torch::randn({n, 2 * n}));
      twin.record("result", y);
      twin.record("number", sum);
    }
    expect_entries(f, 1);
  });
}

TEST(Sizes, WritesViewsAndAliases) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](T x, const T& y) {
      x.narrow(0, 1, x.size(0) - 1).mul_(y.slice(0, 1));
      x.t().add_(1);
      return std::vector<T>{x, x.view({-1}), x.select(1, 0), y.expand({2, y.size(0), y.size(1)}),
                            x.sum()};
    });
    for (int64_t n : {3, 4, 7, 3, 9}) {
      const T x = torch::randn({n, 3}), y = torch::randn({n, 3}).requires_grad_();
      const T base = x.clone();
      const std::vector<T> results = f(base, y);
      results[1].add_(2);  // seen through the argument and the others
      results[4].backward();
      for (const T& result : results) twin.record("result", result);
      twin.record("argument", base);
      twin.record("version", base._version());
      twin.record("gradient", y.grad());
      if (twin.is_compiled()) EXPECT_TRUE(results[0].is_same(base));
      EXPECT_TRUE(results[2].storage().is_alias_of(base.storage()));
    }
    expect_entries(f, 1);
  });
}

TEST(Sizes, ArgumentsThatShareMemory) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](T a, const T& b) {
      a.add_(1);
      return a * b;
    });
    for (int64_t n : {4, 6, 9}) {
      const T memory = torch::randn({2 * n});
      twin.record("apart", f(memory.narrow(0, 0, n), memory.narrow(0, n, n)));
      twin.record("overlapping", f(memory.narrow(0, 0, n), memory.narrow(0, 1, n)));
      twin.record("memory", memory);
      twin.record("one tensor", [&] {
        const T x = torch::randn({n});
        return f(x, x);
      }());
    }
  });
}

TEST(Sizes, RandomNumbersAndBuffers) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6),
                              torch::nn::Dropout(0.4));
    auto f = twin.compile(net, [&](const T& x) { return net->forward(x); });
    for (int64_t n : {5, 3, 8, 5, 2}) {
      const T y = f(torch::randn({n, 4}));
      y.pow(2).sum().backward();
      twin.record("result", y);
    }
    twin.record_state(*net);
    expect_entries(f, 1);
  });
}

TEST(Sizes, GradientsOfGradients) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(3, 4);
    auto f = twin.compile(net, [&](const T& x) { return net(x).tanh().pow(2).sum(); });
    for (int64_t n : {2, 5, 3, 5, 7}) {
      const T x = torch::randn({n, 3}).requires_grad_();
      const T first = torch::autograd::grad({f(x)}, {x}, {}, std::nullopt, true)[0];
      first.pow(2).sum().backward();
      twin.record("gradient", first);
      twin.record("gradient of the gradient", x.grad());
    }
    twin.record_state(*net);
    expect_entries(f, 1);
  });
}

TEST(Sizes, SeveralThreadsAtOnce) {
  torch::manual_seed(3);
  torch::nn::Linear net(4, 3);
  auto f = compile(net, [&](const T& x) { return net(x).sin().sum(); }, {.backend = "eager"});
  std::vector<T> inputs, expected;
  for (int64_t n = 0; n < 24; ++n) {
    inputs.push_back(torch::randn({2 + n % 12, 4}).requires_grad_());
    expected.push_back(torch::autograd::grad({net(inputs.back()).sin().sum()}, {inputs.back()})[0]);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 96; ++i) {
        const size_t n = (i * 7 + t * 5) % inputs.size();
        const T gradient = torch::autograd::grad({f(inputs[n])}, {inputs[n]})[0];
        if (!same_bits(gradient, expected[n])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const Stats stats = f.stats();
  EXPECT_EQ(stats.entries, 1);
  EXPECT_EQ(stats.compiles, 1);
  EXPECT_EQ(stats.variants, 12);
  EXPECT_EQ(stats.traces, 12);
  EXPECT_EQ(stats.calls, 4 * 96);
}

TEST(Sizes, TheOneUsedLongestAgoGoes) {
  auto f = compile([](const T& x) { return x * 2; });
  constexpr int64_t kMost = 1024, kSizes = kMost + 6;
  for (int64_t n = 1; n <= kSizes; ++n) {
    EXPECT_TRUE(f(torch::ones({n})).equal(torch::full({n}, 2.f)));
    EXPECT_TRUE(f(torch::ones({1})).equal(torch::full({1}, 2.f)));  // in use all the time
  }
  Stats stats = f.stats();
  EXPECT_EQ(stats.entries, 1);
  EXPECT_EQ(stats.variants, kMost);
  EXPECT_EQ(stats.traces, kSizes);
  EXPECT_EQ(stats.evictions, 0);
  for (int64_t n : {kSizes, int64_t{8}, int64_t{1}}) f(torch::ones({n}));
  EXPECT_EQ(f.stats().traces, kSizes);
  EXPECT_TRUE(f(torch::ones({2})).equal(torch::full({2}, 2.f)));
  EXPECT_EQ(f.stats().traces, kSizes + 1);
  EXPECT_EQ(f.stats().variants, kMost);
  f.reset();
  EXPECT_EQ(f.stats().variants, 0);
}

TEST(Sizes, WithNeverEachSetIsAnEntry) {
  auto f = compile([](const T& x, double by) { return x * by; }, {.dynamic = Dynamic::never});
  f(torch::ones({2}), 1);
  f(torch::ones({3}), 1);
  f(torch::ones({3}), 2);
  EXPECT_EQ(f.stats().entries, 3);
  EXPECT_EQ(f.stats().variants, 3);
  EXPECT_EQ(f.stats().compiles, 3);
}

TEST(Sizes, OtherDtypesLayoutsAndModesAreOtherEntries) {
  auto f = compile([](const T& x) { return x * 2; });
  f(torch::ones({2, 3}));
  f(torch::ones({4, 5}));
  EXPECT_EQ(f.stats().entries, 1);
  f(torch::ones({4, 5}, torch::kDouble));
  EXPECT_EQ(f.stats().entries, 2);
  f(torch::ones({4, 5}).requires_grad_());
  EXPECT_EQ(f.stats().entries, 3);
  f(torch::ones({4}));
  EXPECT_EQ(f.stats().entries, 4);
  // The same ops: only strides differ.
  f(torch::ones({5, 4}).t());
  EXPECT_EQ(f.stats().entries, 4);
  EXPECT_EQ(f.stats().variants, 6);
}

TEST(Sizes, MoreEntriesThanAllowedRunEagerly) {
  int runs = 0;
  auto f = compile(
      [&](const T& x) {
        ++runs;
        return x.size(0) % 2 == 0 ? x.sin() : x.cos();
      },
      {.max_entries = 1, .verify_every = 0});
  f(torch::ones({2}));
  f(torch::ones({4}));  // another size of the entry has a place
  EXPECT_EQ(f.stats().variants, 2);
  EXPECT_TRUE(f(torch::ones({3})).equal(torch::ones({3}).cos()));
  EXPECT_EQ(f.stats().eager_calls, 1);
  const int64_t traces = f.stats().traces;
  for (int i = 0; i < 3; ++i) f(torch::ones({3}));  // known to have none
  EXPECT_EQ(f.stats().traces, traces);
  EXPECT_EQ(f.stats().eager_calls, 4);
  f(torch::ones({6}));
  EXPECT_EQ(f.stats().variants, 3);
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().calls, f.stats().hits + 7);
}

// A schedule's number is another one in each call: to trace it for ever would cost more than eager.
TEST(Sizes, NumbersThatNeverComeBackRunEagerlyInTheEnd) {
  auto f = compile([](const T& x, double by) { return (x * by).sin(); },
                   {.max_entries = 3, .verify_every = 0});
  double by = 0;
  const auto call = [&](int64_t n) {
    by += 0.25;
    EXPECT_TRUE(f(torch::ones({n}), by).allclose((torch::ones({n}) * by).sin()));
  };
  for (int i = 0; i < 3; ++i) call(4);
  EXPECT_EQ(f.stats().variants, 3);
  EXPECT_EQ(f.stats().eager_calls, 0);
  for (int i = 0; i < 5; ++i) call(4);
  EXPECT_EQ(f.stats().eager_calls, 5);
  EXPECT_EQ(f.stats().traces, 3);
  EXPECT_NE(f.explain(torch::ones({4}), by + 1).find("another number is to be served"),
            std::string::npos);
  f(torch::ones({4}), 0.25);  // one of those that are served
  EXPECT_EQ(f.stats().eager_calls, 5);
  for (int64_t n = 5; n < 12; ++n) call(n);  // sizes are no such numbers
  EXPECT_EQ(f.stats().eager_calls, 5);
  EXPECT_EQ(f.stats().entries, 1);
}

TEST(Sizes, TooManyNumbersAreAnErrorThatSaysSo) {
  auto f = compile([](const T& x, double by) { return x * by; },
                   {.max_entries = 2, .on_overflow = OnOverflow::error});
  f(torch::ones({4}), 1);
  f(torch::ones({4}), 2);
  try {
    f(torch::ones({4}), 3);
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(
        text.find("serves 2 different numbers at these sizes, as many as max_entries allows; "
                  "one more would be needed because entry 0: constant 0 of the arguments is 3.0, "
                  "compiled for 2.0\n  remedy: raise Options::max_entries, or pass the "
                  "number that changes as a tensor"),
        std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace tandem::test
