/// Several threads on one compiled function. The thread sanitizer runs this program.
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
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
  auto f = compile([&](const T& x) {
    ++runs;
    return (x * 2).exp();
  });
  in_threads(4,
             [&](int) { EXPECT_TRUE(f(torch::ones({4})).allclose(torch::full({4}, 2.0).exp())); });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(f.stats().compiles, 1);
}

TEST(Threads, DifferentSizesEachGetTheirEntry) {
  auto f = compile([](const T& x) { return x + 1; });
  in_threads(4, [&](int i) {
    for (int n = 0; n < 5; ++n)
      EXPECT_EQ(f(torch::ones({i + 1})).sum().item<float>(), 2.0f * (i + 1));
  });
  EXPECT_EQ(f.stats().entries, 4);
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

}  // namespace
}  // namespace tandem
