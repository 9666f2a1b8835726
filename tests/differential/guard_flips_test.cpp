/// Each guard flipped once: the call must miss, with a reason that has both values; flipped back,
/// it must hit the entry that exists. And what makes an entry stale.
#include "support/error_text.h"
#include "support/models.h"
#include "support/twins.h"
#include "tandem/tandem.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <utility>

namespace tandem::test {
namespace {

using T = at::Tensor;
using Function = Compiled<T(T)>;

/// Calls before, after the flip and after flipping back; eager judges each result.
void expect_miss_then_hit(const Function& f, const std::function<T(const T&)>& eager, const T& x,
                          const std::function<void()>& flip, const std::function<void()>& back,
                          const std::string& reason) {
  EXPECT_TRUE(f(x).equal(eager(x)));
  const int64_t entries = f.stats().entries;
  flip();
  EXPECT_TRUE(f(x).equal(eager(x)));
  EXPECT_EQ(f.stats().entries, entries + 1);
  EXPECT_EQ(f.stats().misses.back().reason, "entry 0: " + reason);
  f(x);
  EXPECT_EQ(f.stats().entries, entries + 1);
  back();
  EXPECT_TRUE(f(x).equal(eager(x)));
  EXPECT_EQ(f.stats().traces, 2);
}

void expect_switch(const std::function<void()>& flip, const std::function<void()>& back,
                   const std::string& reason) {
  const auto eager = [](const T& x) { return torch::matmul(x, x).sum(0, false, torch::kFloat); };
  expect_miss_then_hit(compile(eager), eager, torch::ones({4, 4}), flip, back, reason);
}

TEST(GuardFlips, ThreadStateAndGlobalSwitches) {
  auto& context = at::globalContext();
  expect_switch([] { c10::GradMode::set_enabled(false); }, [] { c10::GradMode::set_enabled(true); },
                "grad mode is off, compiled with on");
  expect_switch([&] { context.setDeterministicAlgorithms(true, false); },
                [&] { context.setDeterministicAlgorithms(false, false); },
                "deterministic mode is on, compiled with off");
  expect_switch([&] { context.setUserEnabledMkldnn(false); },
                [&] { context.setUserEnabledMkldnn(true); }, "oneDNN is off, compiled with on");
  expect_switch([] { torch::set_default_dtype(caffe2::TypeMeta::Make<double>()); },
                [] { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); },
                "default dtype is f64, compiled with f32");
  expect_switch([&] { context.setSDPUseFlash(false); }, [&] { context.setSDPUseFlash(true); },
                "flash attention is off, compiled with on");
  expect_switch([&] { context.setSDPUseMath(false); }, [&] { context.setSDPUseMath(true); },
                "math attention is off, compiled with on");
  const int threads = at::get_num_threads();
  expect_switch([&] { at::set_num_threads(threads + 1); }, [&] { at::set_num_threads(threads); },
                "number of threads is " + std::to_string(threads + 1) + ", compiled with " +
                    std::to_string(threads));
}

TEST(GuardFlips, AutocastAndInferenceMode) {
  const auto eager = [](const T& x) { return torch::matmul(x, x); };
  auto f = compile(eager);
  T x = torch::ones({4, 4});
  f(x);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  T y = f(x);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(y.equal(eager(x)));
  EXPECT_EQ(f.stats().misses.back().reason,
            "entry 0: autocast on the CPU is on, compiled with off");
  at::autocast::set_autocast_dtype(at::kCPU, torch::kHalf);
  EXPECT_EQ(f(x).scalar_type(), torch::kHalf);
  EXPECT_NE(f.stats().misses.back().reason.find("CPU autocast dtype is f16, compiled with bf16"),
            std::string::npos)
      << f.stats().misses.back().reason;
  at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
  f(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(f(x).equal(eager(x)));
  EXPECT_EQ(f.stats().entries, 3);
  {
    c10::InferenceMode mode;
    EXPECT_TRUE(f(x).is_inference());
    EXPECT_EQ(f.stats().misses.back().reason,
              "entry 0 is nearest: inference mode is on, compiled with off");
    f(x * 1);
    EXPECT_EQ(f.stats().misses.back().reason,
              "entry 3 is nearest: argument 0: is an inference tensor, compiled for an ordinary "
              "tensor");
  }
  EXPECT_FALSE(f(x).is_inference());
  EXPECT_EQ(f.stats().entries, 5);
}

TEST(GuardFlips, FlagOfASubModule) {
  Mlp net(4, 8, 2, 0.5);
  net->eval();
  auto f = compile(net);
  const auto eager = [&](const T& x) { return net->forward(x); };
  T x = torch::ones({3, 4});
  f(x);
  net->drop->train();
  f(x);
  EXPECT_EQ(f.stats().misses.back().reason,
            "entry 0: module \"drop\" is in training mode, compiled in eval mode");
  net->drop->eval();
  EXPECT_TRUE(f(x).equal(eager(x)));
  EXPECT_EQ(f.stats().entries, 2);
}

TEST(GuardFlips, SubModuleAddedToASequential) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2));
  auto f = compile(net);
  T x = torch::ones({1, 2});
  f(x);
  net->push_back(torch::nn::Linear(2, 3));
  EXPECT_TRUE(f(x).equal(net->forward(x)));
  EXPECT_EQ(f.stats().misses.back().reason,
            "entry 0: the module has 2 sub-modules, compiled with 1");
}

TEST(GuardFlips, HandleReboundToUndefinedAndBack) {
  T mask = torch::full({2}, 3.0), first = mask;
  const auto eager = [&](const T& x) { return mask.defined() ? x * mask : x + 1; };
  expect_miss_then_hit(
      compile(eager, {.closes_over = {&mask}}), eager, torch::ones({2}), [&] { mask = T(); },
      [&] { mask = first; },
      "closes_over[0] refers to another tensor (undefined) than at the trace (f32[2])");
  mask = T();
  expect_miss_then_hit(
      compile(eager, {.closes_over = {&mask}}), eager, torch::ones({2}), [&] { mask = first; },
      [&] { mask = T(); },
      "closes_over[0] refers to another tensor (f32[2]) than at the trace (undefined)");
}

// The trace reads only its size, so the entry does not own it: another tensor may get its address.
TEST(GuardFlips, AHandleThatIsNotLiftedIsStillWatched) {
  T shape = torch::ones({2});
  auto f = compile([&](const T& x) { return x * shape.size(0); }, {.closes_over = {&shape}});
  T x = torch::ones({1});
  EXPECT_EQ(f(x).item<float>(), 2);
  for (int64_t n = 3; n < 8; ++n) {
    shape = T();
    shape = torch::ones({n});
    EXPECT_EQ(f(x).item<float>(), static_cast<float>(n));
  }
}

TEST(GuardFlips, GuardOn) {
  enum class Mode { add, mul } mode = Mode::add;
  const auto eager = [&](const T& x) { return mode == Mode::add ? x + 3 : x * 3; };
  expect_miss_then_hit(
      compile(eager, {.guard_on = [&] { return mode; }}), eager, torch::ones({2}),
      [&] { mode = Mode::mul; }, [&] { mode = Mode::add; }, "guard_on returns 1, compiled for 0");
  std::string kind = "sum";
  const auto by_name = [&](const T& x) { return kind == "sum" ? x.sum() : x.mean(); };
  expect_miss_then_hit(
      compile(by_name, {.guard_on = [&] { return kind; }}), by_name, torch::ones({2}),
      [&] { kind = "mean"; }, [&] { kind = "sum"; },
      "guard_on returns \"mean\", compiled for \"sum\"");
}

// Two lifted tensors that did not share memory at the trace, and do now; one of them is written.
TEST(GuardFlips, LiftedTensorsThatCameToOverlap) {
  T counter = torch::zeros({2}), other = torch::ones({2});
  auto f = compile([&](const T& x) {
    counter.add_(1);
    return x * other;
  });
  T x = torch::ones({2});
  EXPECT_EQ(f(x).sum().item<float>(), 2);
  T apart = other.detach().clone();
  other.set_data(apart);  // elsewhere, but not on the other: still served
  f(x);
  EXPECT_EQ(f.stats().entries, 1);
  other.set_data(counter);
  EXPECT_NE(f.explain(x).find("lifted 0 is written and shares memory with lifted 1"),
            std::string::npos);
  const int64_t traces = f.stats().traces;
  EXPECT_EQ(f(x).sum().item<float>(), 6);   // it sees the third addition
  EXPECT_EQ(f.stats().traces, traces + 2);  // the second run knows that they overlap
  EXPECT_EQ(f(x).sum().item<float>(), 8);
  other.set_data(apart);
  EXPECT_EQ(f(x).sum().item<float>(), 2);
  EXPECT_EQ(f.stats().entries, 2);
}

// as_strided counts from the start of the storage, and so does its gradient.
TEST(GuardFlips, StorageOffsetIsGuardedWhereAsStridedIsUsed) {
  T big = torch::arange(12, torch::kFloat);
  // An absolute place, an offset that host code reads, the default.
  const std::vector<std::function<T(const T&)>> programs = {
      [](const T& x) { return x.as_strided({2}, {1}, 5) * x.sum(); },
      [](const T& x) { return x.as_strided({2}, {1}, x.storage_offset() + 1) * x.sum(); },
      [](const T& x) { return x.as_strided({2}, {1}) * x.sum(); }};
  for (const auto& eager : programs) {
    auto f = compile(eager);
    for (int64_t start : {4, 3, 5, 3, 4}) {
      T x = big.slice(0, start, start + 4).detach().set_requires_grad(true);
      T y = big.slice(0, start, start + 4).detach().set_requires_grad(true);
      EXPECT_TRUE(f(x).equal(eager(y))) << start;
      f(x).sum().backward();
      eager(y).sum().backward();
      EXPECT_TRUE(x.grad().equal(y.grad())) << start;
    }
    // The offset is a number of the graph, as a size is.
    EXPECT_EQ(f.stats().variants, 3);
    auto fixed = compile(eager, {.dynamic = Dynamic::never});
    for (int64_t start : {4, 3, 5}) fixed(big.slice(0, start, start + 4));
    EXPECT_EQ(fixed.stats().entries, 3);
    EXPECT_EQ(fixed.stats().misses.back().reason,
              "entry 1 is nearest: argument 0: storage offset is 5, compiled for 3");
  }
  // Batches cut from one tensor are what people train on: elsewhere the offset must not count.
  auto plain = compile([](const T& x) { return x * 2; });
  for (int64_t start : {0, 4, 8}) plain(big.slice(0, start, start + 4));
  EXPECT_EQ(plain.stats().entries, 1);
}

TEST(GuardFlips, DeterministicModeAsInForceWhenEachHalfRuns) {
  auto& context = at::globalContext();
  const auto eager = [](const T& x, const T& index) {
    return x.index({index}).pow(2).cumsum(0).sum() + x.gather(0, index).sum();
  };
  auto f = compile(eager);
  T index = torch::tensor({0, 2, 2, 1});
  for (bool forward : {false, true}) {
    for (bool backward : {false, true}) {
      // Whole numbers: the order of a sum is not what is compared.
      T x = torch::randint(1, 9, {3}).to(torch::kFloat).set_requires_grad(true),
        y = x.detach().clone().set_requires_grad(true);
      context.setDeterministicAlgorithms(forward, false);
      T a = f(x, index), b = eager(y, index);
      context.setDeterministicAlgorithms(backward, false);
      a.backward();
      b.backward();
      context.setDeterministicAlgorithms(false, false);
      EXPECT_TRUE(a.equal(b));
      EXPECT_TRUE(x.grad().equal(y.grad()));
    }
  }
  EXPECT_EQ(f.stats().entries, 2);
}

// Nobody but the entry owns the tensor that it was compiled with: the closure refers to another.
TEST(Stale, AReboundTensorIsNoticedWhenNobodyHoldsTheOldOne) {
  T w = torch::full({2}, 2.0);
  auto f = compile([&](const T& x) { return x * w; });
  T x = torch::ones({2});
  EXPECT_EQ(f(x).sum().item<float>(), 4);
  f(x);
  EXPECT_EQ(f.stats().entries, 1);
  w = torch::full({2}, 3.0);
  EXPECT_EQ(f(x).sum().item<float>(), 6);
  EXPECT_EQ(f.stats().misses.back().reason,
            "entry 0: lifted 0 (f32[2]) is no longer held by the program, so the function must use "
            "another");
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().evictions, 1);
}

// The variants of an entry all hold it, and count as one owner.
TEST(Stale, AlsoWithSeveralSizes) {
  T w = torch::ones({1}).set_requires_grad(true);
  auto f = compile([&](const T& x) { return (x * w).sum(); }, {.verify_every = 0});
  for (int64_t n : {2, 3, 4, 2, 3}) f(torch::ones({n})).backward();
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().variants, 3);
  EXPECT_EQ(f.stats().evictions, 0);
  w = torch::full({1}, 5.0).set_requires_grad(true);
  EXPECT_EQ(f(torch::ones({3})).item<float>(), 15);
  EXPECT_EQ(f.stats().misses.back().reason.substr(0, 28), "entry 0: lifted 0 (f32[1], l");
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().variants, 1);
  EXPECT_EQ(f.stats().evictions, 1);
}

TEST(Stale, AlsoWithGradientsAndKeptAccumulators) {
  T w = torch::full({2}, 2.0).set_requires_grad(true);
  auto f = compile([&](const T& x) { return (x * w).sum(); });
  T x = torch::ones({2});
  for (int i = 0; i < 3; ++i) f(x).backward();
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().traces, 1);
  w = torch::full({2}, 3.0).set_requires_grad(true);
  f(x).backward();
  EXPECT_TRUE(w.grad().equal(x));
  EXPECT_EQ(f.stats().evictions, 1);
}

// A loop that makes a new tensor each time must not fill the table with dead entries.
TEST(Stale, DeadEntriesDoNotCountAgainstTheLimit) {
  T w = torch::ones({2});
  auto f = compile([&](const T& x) { return x * w; },
                   {.max_entries = 2, .on_overflow = OnOverflow::error});
  T x = torch::ones({2});
  for (int i = 0; i < 10; ++i) {
    w = torch::full({2}, i);
    EXPECT_EQ(f(x)[0].item<float>(), static_cast<float>(i));
  }
}

// A tensor in the closure by value, a copy of the lambda, `.data()` of a parameter: all held, or
// never held by anybody; none may look stale.
TEST(Stale, WhatTheClosureHoldsByValueIsNeverStale) {
  auto by_value = compile([w = torch::ones({2})](const T& x) { return x * w; });
  torch::nn::Linear net(2, 2);
  auto data = compile(net, [&](const T& x) { return torch::linear(x, net->weight.data()); });
  auto scaled = [w = torch::ones({2}).set_requires_grad(true)](const T& x) {
    return (x * w).sum();
  };
  auto copied = compile(scaled);
  for (int i = 0; i < 3; ++i) {
    by_value(torch::ones({2}));
    data(torch::ones({1, 2}));
    copied(torch::ones({2})).backward();
  }
  EXPECT_EQ(by_value.stats().traces, 1);
  EXPECT_EQ(data.stats().traces, 1);
  EXPECT_EQ(copied.stats().traces, 1);
}

TEST(Entries, AFailedCompileIsRememberedUntilReset) {
  bool fail = true;
  auto f = compile([&](const T& x) { return fail ? std::get<0>(at::unique_dim(x, 0)) : x * 2; });
  const auto text = [&](const T& x) { return test::error_text<UnsupportedError>([&] { f(x); }); };
  const std::string first = text(torch::ones({2}));
  fail = false;
  EXPECT_EQ(text(torch::ones({2})), first);
  EXPECT_EQ(f.stats().traces, 1);
  EXPECT_EQ(f(torch::ones({3})).sum().item<float>(), 6);  // another call, another compile
  f.reset();
  EXPECT_EQ(f(torch::ones({2})).sum().item<float>(), 4);
}

// A refusal may come from how the arguments lie in memory. It is remembered for those that lie so.
TEST(Entries, ARefusalForOverlapConcernsWhatOverlaps) {
  auto f = compile([](const T& z, const T& parts) {
    parts.mul_(2);
    return z * 2;
  });
  const auto text = [&](const T& z, const T& parts) {
    return test::error_text<UnsupportedError>([&] { f(z, parts); });
  };
  const auto overlapping = [] { return torch::ones({4}, torch::kComplexFloat); };
  T z = overlapping();
  const std::string first = text(z, torch::view_as_real(z));
  EXPECT_NE(first.find("shares memory"), std::string::npos) << first;
  EXPECT_TRUE(f(z, torch::ones({4, 2})).equal(z * 2));
  z = overlapping();
  EXPECT_EQ(text(z, torch::view_as_real(z)), first);
  EXPECT_EQ(f.stats().traces, 2);
  const T both = torch::ones({8}, torch::kComplexFloat), half = both.slice(0, 4, 8);
  EXPECT_TRUE(f(both.slice(0, 0, 4), torch::view_as_real(half)).equal(half));
  EXPECT_EQ(f.stats().entries, 1);
}

TEST(Entries, ARefusalForOverlapWithWhatIsClosedOver) {
  const T state = torch::ones({4}, torch::kComplexFloat);
  auto f = compile([state](const T& parts) {
    parts.mul_(2);
    return state * 2;
  });
  const auto text = [&](const T& parts) {
    return test::error_text<UnsupportedError>([&] { f(parts); });
  };
  const std::string first = text(torch::view_as_real(state));
  EXPECT_NE(first.find("shares memory"), std::string::npos) << first;
  EXPECT_TRUE(f(torch::ones({4, 2})).equal(state * 2));
  EXPECT_EQ(text(torch::view_as_real(state)), first);
  EXPECT_EQ(f.stats().entries, 1);
}

// set_data() gives a tensor other memory and leaves it its version counter.
TEST(Entries, APartThatWasSeparatedCountsWithTheWhole) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const T& a, const T& b, const T& w) {
      const T y = b * w;
      a.add_(1);
      return y;
    });
    for (int call = 0; call < 3; ++call) {
      T whole = torch::randn({4});
      const T part = whole.slice(0, 0, 4), w = torch::randn({4}).requires_grad_();
      whole.set_data(torch::randn({4}));
      const T y = f(whole, part, w);
      twin.record_error("backward", [&] { y.sum().backward(); });
      twin.record("version", static_cast<int64_t>(part._version()));
    }
    f.expect_one_compile();
  });
}

// Which inputs have one version counter shows in their versions, and in what a backward may read.
TEST(Entries, OnePerPatternOfVersionCounters) {
  using Parts = std::pair<T, T>;
  const auto parts = [] {
    const T both = torch::randn({8});
    return Parts{both.slice(0, 0, 4), both.slice(0, 4, 8)};
  };
  const auto apart = [] { return Parts{torch::randn({4}), torch::randn({4})}; };
  for (const bool first_apart : {false, true}) {
    expect_twins_agree([&](Twin& twin) {
      auto f = twin.compile([](const T& a, const T& b, const T& w) {
        const T y = b * w;
        a.add_(1);
        return y;
      });
      auto write_both = twin.compile([](const T& a, const T& b) {
        a.add_(1);
        b.mul_(2);
        return a + b;
      });
      for (int call = 0; call < 4; ++call) {
        const auto [a, b] = (call % 2 == 0) == first_apart ? apart() : parts();
        const T w = torch::randn({4}).requires_grad_();
        const T y = f(a, b, w);
        twin.record_error("backward", [&] { y.sum().backward(); });
        twin.record("gradient", w.grad());
        write_both(a, b);
        twin.record("version of the first", static_cast<int64_t>(a._version()));
        twin.record("version of the second", static_cast<int64_t>(b._version()));
      }
    });
  }
}

}  // namespace
}  // namespace tandem::test
