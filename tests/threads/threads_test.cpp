/// Several threads on one compiled function. The thread sanitizer runs this program.
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tandem {
namespace {

using T = at::Tensor;

template <class Fn>
void in_threads(int count, Fn&& fn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&fn, i] { fn(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, ConcurrentFirstCallsCompileOnce) {
  std::atomic<int> runs{0};
  // A thread that comes after the compile would check the entry, which is a run, too.
  auto f = compile(
      [&](const T& x) {
        ++runs;
        return (x * 2).exp();
      },
      {.verify_every = 0});
  in_threads(4,
             [&](int) { EXPECT_TRUE(f(torch::ones({4})).allclose(torch::full({4}, 2.0).exp())); });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(f.stats().compiles, 1);
}

TEST(Threads, DifferentSizesShareAnEntry) {
  auto f = compile([](const T& x) { return x + 1; });
  in_threads(4, [&](int i) {
    for (int n = 0; n < 5; ++n)
      EXPECT_EQ(f(torch::ones({i + 1})).sum().item<float>(), 2.0f * (i + 1));
  });
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_EQ(f.stats().compiles, 1);
  EXPECT_EQ(f.stats().variants, 4);
  EXPECT_EQ(f.stats().traces, 4);
}

TEST(Threads, EachThreadTrainsItsOwnFunction) {
  in_threads(3, [](int i) {
    torch::nn::Linear net(3, 1);
    auto f = compile(net, [&](const T& x) { return net(x).pow(2).sum(); });
    for (int n = 0; n < 3; ++n) {
      net->zero_grad();
      T x = torch::full({2, 3}, i + n + 1.0);
      f(x).backward();
      T got = net->weight.grad().clone();
      net->zero_grad();
      net(x).pow(2).sum().backward();
      EXPECT_TRUE(got.equal(net->weight.grad()));
    }
  });
}

TEST(Threads, BackwardInAnotherThread) {
  auto f = compile([](const T& x) { return x.exp().sum(); });
  T x = torch::ones({3}).set_requires_grad(true);
  T y = f(x);
  std::thread([&] { y.backward(); }).join();
  EXPECT_TRUE(x.grad().allclose(x.detach().exp()));
}

// What one thread traces must not be recorded by another that computes eagerly meanwhile.
TEST(Threads, EagerWorkBesideATraceIsNotRecorded) {
  std::atomic<bool> tracing{false}, done{false};
  auto f = compile([&](const T& x) {
    tracing = true;
    while (!done) std::this_thread::yield();
    return x * 2;
  });
  std::thread other([&] {
    while (!tracing) std::this_thread::yield();
    T sum = torch::zeros({2});
    for (int i = 0; i < 10; ++i) sum = sum + 1;
    EXPECT_EQ(sum.sum().item<float>(), 20);
    done = true;
  });
  f(torch::ones({2}));
  other.join();
  EXPECT_EQ(f.entries()[0].forward().node_count(), 1);
}

TEST(Threads, ResetDuringCalls) {
  auto f = compile([](const T& x) { return x * 3; });
  in_threads(3, [&](int i) {
    for (int n = 0; n < 10; ++n) {
      if (i == 0) {
        f.reset();
      } else {
        EXPECT_EQ(f(torch::ones({2})).sum().item<float>(), 6);
      }
    }
  });
}

// Neither trace ends before both have started: compiles one after the other would wait for ever.
TEST(Threads, DifferentKeysCompileAtTheSameTime) {
  std::atomic<int> inside{0};
  auto f = compile([&](const T& x) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
    return x * 2;
  });
  in_threads(
      2, [&](int i) { EXPECT_EQ(f(torch::ones({i + 1})).sum().item<float>(), 2.0f * (i + 1)); });
  EXPECT_EQ(f.stats().entries, 1);  // though neither knew of the other
  EXPECT_EQ(f.stats().variants, 2);
}

TEST(Threads, AWaitingThreadGetsTheFailure) {
  std::atomic<int> runs{0}, errors{0};
  auto f = compile([&](const T& x) {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::get<0>(at::unique_dim(x, 0));
  });
  in_threads(3, [&](int) {
    try {
      f(torch::ones({2}));
    } catch (const UnsupportedError&) {
      ++errors;
    }
  });
  EXPECT_EQ(errors, 3);
  EXPECT_EQ(runs, 1);
}

// Whoever waited for a compile that came to nothing makes the entry himself.
TEST(Threads, AWaitingThreadOutlivesACancelledCompile) {
  std::atomic<int> events{0};
  auto f = compile([](const T& x) { return x * 2; }, {.on_event = [&](const Event&) {
                     if (events++ > 0) return true;
                     std::this_thread::sleep_for(std::chrono::milliseconds(20));
                     return false;
                   }});
  std::atomic<int> cancelled{0};
  in_threads(3, [&](int) {
    try {
      EXPECT_EQ(f(torch::ones({2})).sum().item<float>(), 4);
    } catch (const UserError&) {
      ++cancelled;
    }
  });
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(f.stats().compiles, 1);
}

TEST(Threads, MoreKeysThanEntriesAllowed) {
  auto f = compile([](const T& x) { return x + 1; }, {.dynamic = Dynamic::never, .max_entries = 2});
  WarningSink before = set_warning_sink([](const std::string&) {});
  in_threads(4, [&](int i) {
    for (int n = 0; n < 5; ++n)
      EXPECT_EQ(f(torch::ones({i + 1})).sum().item<float>(), 2.0f * (i + 1));
  });
  set_warning_sink(before);
  EXPECT_EQ(f.stats().entries, 2);
}

TEST(Threads, ResetFromInsideTheFunctionAndFromAGuard) {
  Compiled<T(T)> f;
  f = compile([&](const T& x) {
    f.reset();
    return x * 2;
  });
  EXPECT_EQ(f(torch::ones({2})).sum().item<float>(), 4);
  EXPECT_EQ(f.stats().entries, 0);  // forgotten while it was made

  Compiled<T(T)> g;
  bool forget = false;
  g = compile([](const T& x) { return x * 3; }, {.guard_on = [&] {
                if (forget) g.reset();
                return 1;
              }});
  EXPECT_EQ(g(torch::ones({2})).sum().item<float>(), 6);
  forget = true;
  in_threads(2, [&](int) { EXPECT_EQ(g(torch::ones({2})).sum().item<float>(), 6); });
}

TEST(Threads, AFunctionThatCallsItselfThroughItsHandle) {
  Compiled<T(T, int64_t)> power;
  power = compile(
      [&](const T& x, int64_t n) { return n == 0 ? torch::ones_like(x) : x * power(x, n - 1); });
  EXPECT_EQ(power(torch::full({1}, 2.0), 5).item<float>(), 32);
  EXPECT_EQ(power.stats().traces, 1);
}

TEST(Threads, PrepareAndExplainInsideATraceAreErrors) {
  Compiled<T(T)> f;
  std::string text;
  f = compile([&](const T& x) {
    try {
      f.prepare(x);
    } catch (const UserError& error) {
      text = error.what();
    }
    return x * 2;
  });
  f(torch::ones({2}));
  EXPECT_EQ(
      text,
      "call: prepare() of a compiled function is called inside a function that is being traced\n"
      "  remedy: call it outside; there the arguments have no data");
}

TEST(Threads, HandleDestroyedWhileAnotherThreadIsInside) {
  std::atomic<bool> inside{false}, gone{false};
  auto f = std::make_unique<Compiled<T(T)>>(compile([&](const T& x) {
    inside = true;
    while (!gone) std::this_thread::yield();
    return x * 2;
  }));
  std::thread other([&handle = *f] {
    T y = handle(torch::ones({2}).set_requires_grad(true));
    y.sum().backward();
  });
  while (!inside) std::this_thread::yield();
  f.reset();
  gone = true;
  other.join();
}

// The engine calls hooks in threads of its own when the device has one; on the CPU in ours. Both
// look alike to a compiled function: any thread, grad mode off.
TEST(Threads, CallsFromHooksOfTheEngine) {
  auto scale = compile([](const T& x) { return x * 2; });
  in_threads(2, [&](int) {
    for (int n = 0; n < 3; ++n) {
      T x = torch::ones({3}).set_requires_grad(true);
      T y = x.exp();
      y.register_hook([&](const T& grad) { return scale(grad); });
      y.sum().backward();
      EXPECT_TRUE(x.grad().equal(2 * x.detach().exp()));
    }
  });
  EXPECT_EQ(scale.stats().compiles, 1);
}

TEST(Threads, StatsReportAndExplainBesideCalls) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net);
  in_threads(3, [&](int i) {
    for (int n = 0; n < 5; ++n) {
      T x = torch::ones({1 + n % 2, 2});
      if (i == 0) {
        EXPECT_FALSE(f.report().empty());
        EXPECT_FALSE(f.explain(x).empty());
        EXPECT_GE(f.stats().calls, 0);
      } else {
        EXPECT_TRUE(f(x).equal(net->forward(x)));
      }
    }
  });
}

}  // namespace
}  // namespace tandem
