/// A compiled function checks itself: every kind of host state that a program may change behind its
/// back is found, nothing else is reported, and nothing is touched.
#include "base/error.h"
#include "support/error_text.h"
#include "support/models.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

namespace tandem::test {
namespace {

using T = at::Tensor;

/// The head of the error: the line that says what has changed.
std::string changed(const std::function<void()>& call) {
  const std::string text = error_text<UserError>(call);
  const std::string start = "call: the function is not what was compiled: ";
  return text.starts_with(start) ? text.substr(start.size(), text.find('\n') - start.size()) : text;
}

T sample() { return torch::arange(6, torch::kFloat).reshape({3, 2}) - 2; }

/// Calls, changes something, and calls three times more: each time it must be found. Then it is put
/// back, and the calls go on.
template <class F>
void expect_found(F& f, const std::function<void()>& call, const std::string& what,
                  const std::function<void()>& change, const std::function<void()>& put_back) {
  call();
  change();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(changed(call), what);
  put_back();
  for (int i = 0; i < 3; ++i) call();
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().traces, 1);
}

TEST(Checks, ACapturedNumber) {
  double factor = 2;
  auto f = compile([&](const T& x) { return x * factor; });
  expect_found(
      f, [&] { f(sample()); }, "mul other=2, now 0.5", [&] { factor = 0.5; }, [&] { factor = 2; });
}

TEST(Checks, AnOptionOfANamedModule) {
  torch::nn::Dropout drop(0.5);
  auto f = compile(drop, [&](const T& x) { return drop(x); });
  expect_found(
      f, [&] { f(sample()); }, "dropout p=0.5, now 0.1", [&] { drop->options.p(0.1); },
      [&] { drop->options.p(0.5); });
}

TEST(Checks, AMemberOfAModuleThatIsAssignedAgain) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net, [&](const T& x) { return net(x); });
  const T registered = net->weight;
  expect_found(
      f, [&] { f(sample()); },
      "t reads another tensor in place of parameter \"weight\" (f32[2, 2])",
      [&] { net->weight = torch::zeros({2, 2}).set_requires_grad(true); },
      [&] { net->weight = registered; });
}

TEST(Checks, ATensorVariableThatIsAssignedAgain) {
  T mask = torch::ones({2});
  const T before = mask;
  auto f = compile([&](const T& x) { return x * mask; });
  expect_found(
      f, [&] { f(sample()); }, "mul reads another tensor as other (f32[2], now f32[1])",
      [&] { mask = torch::zeros({1}); }, [&] { mask = before; });
}

TEST(Checks, AListOfTensorsThatGrows) {
  std::vector<T> history{torch::ones({2})};
  auto f = compile([&](const T& x) { return x + torch::stack(history).sum(0); });
  expect_found(
      f, [&] { f(sample()); }, "stack tensors.size()=1, now 2",
      [&] { history.push_back(torch::ones({2})); }, [&] { history.pop_back(); });
}

TEST(Checks, AListOfNumbersThatGrows) {
  std::vector<double> losses{1};
  auto f = compile([&](const T& x) { return x / static_cast<double>(losses.size()); });
  expect_found(
      f, [&] { f(sample()); }, "div other=1, now 2", [&] { losses.push_back(1); },
      [&] { losses.pop_back(); });
}

TEST(Checks, ATensorThatWasUndefinedAtFirst) {
  T bias;
  auto f = compile([&](const T& x) { return bias.defined() ? x.sin() + bias : x.sin(); });
  expect_found(
      f, [&] { f(sample()); }, "it calls add after what was compiled (1 op)",
      [&] { bias = torch::ones({2}); }, [&] { bias.reset(); });
}

TEST(Checks, ABatchThatIsCapturedInsteadOfPassed) {
  const std::vector<T> batches{sample(), sample() + 1};
  T batch = batches[0];
  torch::nn::Linear net(2, 1);
  auto f = compile(net, [&] { return net(batch).sum(); });
  expect_found(
      f, [&] { f(); }, "addmm reads another tensor as mat1 (f32[3, 2])",
      [&] { batch = batches[1]; }, [&] { batch = batches[0]; });
}

TEST(Checks, ADecisionOfTheHost) {
  bool sine = true;
  auto f = compile([&](const T& x) { return sine ? x.sin() : x.cos(); });
  expect_found(
      f, [&] { f(sample()); }, "it called sin, now cos", [&] { sine = false; },
      [&] { sine = true; });
  bool more = false;
  auto g = compile([&](const T& x) { return more ? x.sin().exp() : x.sin(); });
  expect_found(
      g, [&] { g(sample()); }, "it calls exp after what was compiled (1 op)", [&] { more = true; },
      [&] { more = false; });
  bool less = false;
  auto h = compile([&](const T& x) { return less ? x.sin() : x.sin().exp(); });
  expect_found(
      h, [&] { h(sample()); }, "it ends after 1 op, before exp", [&] { less = true; },
      [&] { less = false; });
}

TEST(Checks, ANumberThatBecomesATensor) {
  bool as_tensor = false;
  auto f = compile([&](const T& x) { return as_tensor ? x * x : x * 2; });
  expect_found(
      f, [&] { f(sample()); }, "it called mul(other=2), now mul()", [&] { as_tensor = true; },
      [&] { as_tensor = false; });
}

TEST(Checks, ADecisionBetweenArguments) {
  bool swapped = false;
  auto f = compile([&](const T& x, const T& y) { return swapped ? y - x : x - y; });
  expect_found(
      f, [&] { f(sample(), sample()); }, "an op reads something else", [&] { swapped = true; },
      [&] { swapped = false; });
}

TEST(Checks, TheModeOfAModuleThatNobodyNamed) {
  torch::nn::BatchNorm1d norm(2);
  auto f = compile([&](const T& x) { return norm(x); });
  expect_found(
      f, [&] { f(sample()); }, "batch_norm training=true, now false", [&] { norm->eval(); },
      [&] { norm->train(); });
  torch::nn::Dropout drop;
  drop->eval();
  auto g = compile([&](const T& x) { return drop(x) + 1; });
  expect_found(
      g, [&] { g(sample()); }, "dropout train=false, now true", [&] { drop->train(); },
      [&] { drop->eval(); });
}

TEST(Checks, AConstantOfTheHost) {
  std::vector<float> numbers(100, 1);
  auto f = compile([&](const T& x) { return x.sum() * torch::tensor(numbers); });
  expect_found(
      f, [&] { f(sample()); }, "element 99 of a tensor that host code fills is 1, now 2",
      [&] { numbers[99] = 2; }, [&] { numbers[99] = 1; });
}

TEST(Checks, ANumberAmongTheResults) {
  double real = 0.1;
  auto f = compile([&](const T& x) { return std::pair<T, double>(x * 2, real); });
  expect_found(
      f, [&] { f(sample()); }, "number or text 0 of its results was 0.1, now 0.1000000000000001",
      [&] { real = 0.1 + 1e-16; }, [&] { real = 0.1; });
}

TEST(Checks, WhatIsDoneToArguments) {
  bool reshaped = false;
  auto f = compile([&](const T& x) { return reshaped ? x.view({2, 3}) : x; });
  f(sample());
  reshaped = true;
  EXPECT_NE(error_text<UserError>([&] { f(sample()); }).find("is not what was compiled"),
            std::string::npos);
}

// The variable holds a tensor of the trace by then: no run of the function is possible any more.
TEST(Checks, StateThatTheFunctionItselfAssigns) {
  T state;
  auto f = compile([&](const T& x) {
    state = state.defined() ? state * 0.5 + x : x + 0;
    return state * 2;
  });
  f(sample());
  std::vector<T> seen;
  auto g = compile([&](const T& x) {
    seen.push_back(x + 1);
    return torch::stack(seen);
  });
  g(sample());
  for (int i = 0; i < 3; ++i) {
    for (const auto& text : {error_text<UserError>([&] { f(sample()); }),
                             error_text<UserError>([&] { g(sample()); })}) {
      EXPECT_NE(text.find("was given a tensor that belongs to a trace which is over"),
                std::string::npos)
          << text;
    }
  }
}

// What eager would say.
TEST(Checks, AFunctionThatThrowsNow) {
  bool broken = false;
  auto f = compile([&](const T& x) {
    if (broken) throw std::runtime_error("no such file");
    return x + 1;
  });
  f(sample());
  broken = true;
  EXPECT_THROW(f(sample()), std::runtime_error);
  broken = false;
  f(sample());
}

TEST(Checks, AFunctionThatCannotBeCompiledNow) {
  bool reads = false;
  const auto body = [&](const T& x) {
    return reads && x.sum().item<float>() > 0 ? x.sin() : x.cos();
  };
  auto strict = compile(body);
  auto lenient = compile(body, {.on_unsupported = OnUnsupported::eager});
  strict(sample());
  lenient(sample());
  reads = true;
  EXPECT_THROW(strict(sample()), UnsupportedError);
  EXPECT_TRUE(lenient(sample()).allclose(sample().sin()));
  EXPECT_TRUE(lenient(sample()).allclose(sample().sin()));
  EXPECT_EQ(lenient.stats().eager_calls, 2);
}

// ---- when

TEST(Checks, ComeAtEveryPowerOfTwo) {
  int runs = 0;
  auto f = compile([&](const T& x) {
    ++runs;
    return x + 1;
  });
  for (int i = 0; i < 100; ++i) f(sample());
  EXPECT_EQ(f.stats().checks, 6);  // 2, 4, 8, 16, 32, 64
  EXPECT_EQ(f.stats().traces, 1);
  EXPECT_EQ(f.stats().hits, 99);
  EXPECT_EQ(runs, 7);
  auto never = compile([&](const T& x) { return x + ++runs; }, {.verify_every = 0});
  for (int i = 0; i < 10; ++i) never(sample());
  EXPECT_EQ(never.stats().checks, 0);
}

TEST(Checks, APreparedEntryHasServedNoCallYet) {
  auto f = compile([](const T& x) { return x + 1; });
  f.prepare(sample());
  f(sample());
  EXPECT_EQ(f.stats().checks, 0);
  f(sample());
  EXPECT_EQ(f.stats().checks, 1);
}

TEST(Checks, ComeWhereCallsChangeBetweenEntries) {
  bool sine = true;
  auto f = compile([&](const T& x) { return sine ? x.sin() : x.cos(); });
  const T x = sample();
  for (int i = 0; i < 5; ++i) f(x);  // the next one by count is the 8th
  {
    const torch::NoGradGuard guard;
    f(x);
  }
  sine = false;
  EXPECT_EQ(changed([&] { f(x); }), "it called sin, now cos");
}

TEST(Checks, BecomeFewWhereCallsAlternate) {
  auto f = compile([](const T& x) { return x + 1; }, {.dynamic = Dynamic::never});
  for (int i = 0; i < 1000; ++i) {
    f(torch::ones({2}));
    f(torch::ones({3}));
  }
  // Of each entry at most ten by count and ten by change.
  EXPECT_LE(f.stats().checks, 40);
  EXPECT_EQ(f.stats().traces, 2);
}

// To go from one size to another is no change. Twice as many calls are one power of two more, and
// each size is looked at by itself.
TEST(Checks, AreThoseOfOneEntryWhereSizesAlternate) {
  auto f = compile([](const T& x) { return x + 1; });
  for (int i = 0; i < 1000; ++i) {
    f(torch::ones({2}));
    f(torch::ones({3}));
  }
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().traces, 2);
  EXPECT_GE(f.stats().checks, 11);      // by count
  EXPECT_LE(f.stats().checks, 11 + 4);  // one by change, three of the size that the count misses
}

TEST(Checks, AreFewWithManySizes) {
  auto f = compile([](const T& x) { return x + 1; });
  for (int i = 0; i < 50; ++i) {
    for (int64_t n = 1; n <= 40; ++n) f(torch::ones({n}));
  }
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().traces, 40);
  EXPECT_LE(f.stats().checks, 2 * 40 + 12);  // two of each size, 2000 calls in all
}

// The new size has the new number: only the old one is out of date, and calls of both alternate so
// that every check by count would look at the new one.
TEST(Checks, ANumberThatIsOutOfDateAtOneSizeOnly) {
  double factor = 2;
  auto f = compile([&](const T& x) { return x * factor; });
  const T old_size = torch::ones({2}), new_size = torch::ones({3});
  f(old_size);
  factor = 0.5;
  EXPECT_TRUE(f(new_size).equal(new_size * 0.5));
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(changed([&] { f(old_size); }), "mul other=2, now 0.5");
  EXPECT_TRUE(f(new_size).equal(new_size * 0.5));
  EXPECT_EQ(changed([&] { f(old_size); }), "mul other=2, now 0.5");
  // Put back, it is the other one that is out of date, and known to be suspicious.
  factor = 2;
  EXPECT_TRUE(f(old_size).equal(old_size * 2));
  f.reset();
  EXPECT_TRUE(f(new_size).equal(new_size * 2));
}

TEST(Checks, AfterAFailureEverySizeIsLookedAt) {
  double factor = 2;
  auto f = compile([&](const T& x) { return x * factor; });
  for (int64_t n = 1; n <= 5; ++n) f(torch::ones({n}));
  factor = 0.5;
  for (int64_t n = 1; n <= 5; ++n)
    EXPECT_EQ(changed([&] { f(torch::ones({n})); }), "mul other=2, now 0.5") << n;
  factor = 2;
  const int64_t checks = f.stats().checks;
  for (int64_t n = 1; n <= 5; ++n) f(torch::ones({n}));
  EXPECT_EQ(f.stats().checks, checks + 5);
}

TEST(Checks, EachSizeThatIsCalledOftenHasItsTurn) {
  double factor = 2;
  auto f = compile([&](const T& x) { return x * factor; });
  f(torch::ones({1}));
  factor = 0.5;
  f(torch::ones({2}));
  factor = 2;
  f(torch::ones({1}));  // the first after new sizes: checked, and right
  f(torch::ones({1}));  // the 4th call; every power of two from now on falls on this size
  const auto count = [&] {
    int calls = 0;
    while (changed([&] { f(torch::ones({2})); }) == "(no error)") {
      ++calls;
      f(torch::ones({1}));
      if (calls == 100) break;
    }
    return calls;
  };
  EXPECT_LT(count(), 8);
}

// ---- what is no difference

TEST(Checks, HostCodeThatGivesTheSameGraph) {
  int runs = 0;
  std::vector<float> numbers(40, 2);
  T weight = torch::ones({2}).set_requires_grad(true);
  auto inner = compile([](const T& x) { return x * 3; });
  auto f = compile(
      [&](const T& x) {
        ++runs;
        std::vector<float> large(1000, 1.5F);
        T memory = torch::empty({2});
        memory[0] = 1;
        memory[1] = 2;
        T filled = torch::empty({40});
        std::copy(numbers.begin(), numbers.end(), filled.data_ptr<float>());
        T unused = torch::empty({50});
        return inner(x * memory) + filled.sum() + torch::tensor(large).sum() +
               weight.data() * torch::tensor(runs > 0) + weight;
      },
      {.verify_every = 1});
  const T first = f(sample());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(f(sample()).equal(first));
  EXPECT_EQ(f.stats().checks, 10);
}

// Nobody else holds the old tensor: this is noticed, and compiled again.
TEST(Checks, AVariableThatAloneHeldItsTensor) {
  T mask = torch::ones({2});
  auto f = compile([&](const T& x) { return x * mask; });
  for (int i = 0; i < 6; ++i) {
    mask = torch::full({2}, i);
    EXPECT_TRUE(f(sample()).equal(sample() * mask));
  }
  EXPECT_EQ(f.stats().evictions, 5);
}

// Sizes and memory of arguments that the guards let pass.
TEST(Checks, ArgumentsThatShareMemory) {
  auto f = compile([](const T& x, const T& y) { return x * 2 + y + x.sin() * y.t(); },
                   {.verify_every = 1});
  const T base = torch::rand({2, 2, 2});
  f(torch::rand({2, 2}), torch::rand({2, 2}));
  f(base[0], base[1]);
  f(base[0], base[0].view({2, 2}));
  f(base[1], base[1].detach());
}

TEST(Checks, GradientsOfGradients) {
  auto f = compile([](const T& x) { return (x.sin() * x).sum(); });
  for (int i = 0; i < 5; ++i) {
    T x = sample().set_requires_grad(true);
    T first = torch::autograd::grad({f(x)}, {x}, {}, true, true)[0];
    T second = torch::autograd::grad({first.sum()}, {x})[0];
    T y = sample().set_requires_grad(true);
    T expected = torch::autograd::grad({(y.sin() * y).sum()}, {y}, {}, true, true)[0];
    EXPECT_TRUE(second.allclose(torch::autograd::grad({expected.sum()}, {y})[0]));
  }
}

TEST(Checks, ThreadsThatCallAtOnce) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net, {.verify_every = 3});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 30; ++n) EXPECT_TRUE(f(sample()).equal(net->forward(sample())));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.stats().traces, 1);
  EXPECT_GT(f.stats().checks, 3);
}

// ---- what stays as it is

TEST(Checks, TheRandomStream) {
  const auto body = [](const T& x) { return torch::dropout(x, 0.5, true) + torch::rand_like(x); };
  auto f = compile(body, {.verify_every = 1});
  torch::manual_seed(3);
  std::vector<T> found;
  for (int i = 0; i < 5; ++i) found.push_back(f(sample()));
  torch::manual_seed(3);
  for (const T& one : found) EXPECT_TRUE(one.equal(body(sample())));
}

// A seed that is set inside acts at the compile only, so checks must take it back.
TEST(Checks, AFunctionThatSeeds) {
  const auto body = [](const T& x) {
    torch::manual_seed(5);
    return x + torch::rand_like(x);
  };
  auto checked = compile(body, {.verify_every = 1});
  auto unchecked = compile(body, {.verify_every = 0});
  std::vector<T> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(unchecked(sample()));
  for (const T& one : expected) EXPECT_TRUE(checked(sample()).equal(one));
}

TEST(Checks, BuffersVersionsAndHooks) {
  torch::nn::BatchNorm1d norm(2), eager(2);
  T weight = torch::ones({2}).set_requires_grad(true);
  int hooks = 0;
  auto f = compile(norm,
                   [&](const T& x) {
                     weight.register_hook([&](const T& gradient) {
                       ++hooks;
                       return gradient;
                     });
                     return (norm(x) * weight).sum();
                   },
                   {.verify_every = 1});
  f(sample()).backward();
  eager(sample());
  const int once = std::exchange(hooks, 0);
  for (int i = 0; i < 4; ++i) {
    f(sample()).backward();
    eager(sample());
  }
  EXPECT_EQ(hooks, 4 * once);
  EXPECT_TRUE(norm->running_mean.equal(eager->running_mean));
  EXPECT_TRUE(norm->running_var.equal(eager->running_var));
  EXPECT_TRUE(norm->num_batches_tracked.equal(eager->num_batches_tracked));
  EXPECT_EQ(norm->running_mean._version(), eager->running_mean._version());
  EXPECT_EQ(norm->num_batches_tracked._version(), eager->num_batches_tracked._version());
  EXPECT_EQ(f.stats().checks, 4);
}

TEST(Checks, AReportComesBeforeAnyEffect) {
  bool twice = false;
  T counter = torch::zeros({1});
  auto f = compile([&](const T& x) {
    counter.add_(twice ? 2 : 1);
    x.mul_(2);
    return torch::dropout(x, 0.5, true);
  });
  f(sample());
  twice = true;
  T x = sample();
  const T state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const auto version = counter._version();
  const Stats before = f.stats();
  EXPECT_EQ(changed([&] { f(x); }), "add_ other=1, now 2");
  EXPECT_EQ(counter.item<float>(), 1);
  EXPECT_EQ(counter._version(), version);
  EXPECT_TRUE(x.equal(sample()));
  EXPECT_EQ(x._version(), 0);
  EXPECT_TRUE(state.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
  EXPECT_EQ(f.stats().traces, before.traces);
  EXPECT_EQ(f.stats().entries, 1);
}

}  // namespace
}  // namespace tandem::test
