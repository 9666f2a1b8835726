/// The shortcuts of a call (docs/stages/call.md) must not show: inputs that the kernels borrow,
/// edges that are kept between calls, saved inputs without a SavedVariable.
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <optional>
#include <thread>

namespace tandem::test {
namespace {

using T = at::Tensor;

T leaf(at::IntArrayRef sizes) { return torch::randn(sizes, torch::requires_grad()); }

/// `(x * w + b) * w` with its two parameters.
struct Scale {
  T w = leaf({4}), b = leaf({4});
  Compiled<T(T)> compiled = compile([w = w, b = b](const T& x) { return (x * w + b) * w; });

  T eager(const T& x) const { return (x * w + b) * w; }

  /// One step of each on the same tensors; gradients must agree.
  void expect_same_gradients(const T& x) const {
    std::vector<T> inputs{w, b};
    if (x.requires_grad()) inputs.push_back(x);
    const auto expected = torch::autograd::grad({eager(x).sum()}, inputs);
    const auto got = torch::autograd::grad({compiled(x).sum()}, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
  }
};

TEST(CallPath, ReferencesAreGivenBack) {
  Scale scale;
  const T x = leaf({4});
  scale.compiled(x).sum().backward();
  const auto arguments = x.use_count(), parameters = scale.w.use_count();
  for (int i = 0; i < 10; ++i) scale.compiled(x).sum().backward();
  EXPECT_EQ(x.use_count(), arguments);
  EXPECT_EQ(scale.w.use_count(), parameters);
}

TEST(CallPath, MoreInputsThanLieOnTheStack) {
  std::vector<T> parameters;
  for (int i = 0; i < 400; ++i) parameters.push_back(leaf({2}));
  auto sum = compile([parameters](const T& x) {
    T result = x;
    for (const T& p : parameters) result = result + p * x;
    return result;
  });
  const T x = leaf({2});
  T eager = x;
  for (const T& p : parameters) eager = eager + p * x;
  for (int call = 0; call < 3; ++call) {
    const T y = sum(x);
    EXPECT_TRUE(same_bits(y, eager));
    const auto gradients = torch::autograd::grad({y.sum()}, parameters);
    for (const T& gradient : gradients) EXPECT_TRUE(same_bits(gradient, x.detach()));
  }
}

TEST(CallPath, KeptEdgesDoNotKeepTheCallersGraph) {
  Scale scale;
  const T root = leaf({4});
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> input;
  {
    const T x = root * 2;
    input.emplace(x.getIntrusivePtr());
    scale.compiled(x).sum().backward();
  }
  EXPECT_TRUE(input->expired());
  scale.expect_same_gradients(root * 3);
}

TEST(CallPath, TwoGraphsAliveAndFreedInEitherOrder) {
  Scale scale;
  for (const bool older_first : {true, false}) {
    const T x1 = leaf({4}), x2 = leaf({4});
    T y1 = scale.compiled(x1), y2 = scale.compiled(x2);
    (older_first ? y1 : y2).sum().backward();
    (older_first ? y1 : y2).reset();
    const T y3 = scale.compiled(x1);
    (older_first ? y2 : y1).sum().backward();
    y3.sum().backward();
    EXPECT_TRUE(same_bits(x2.grad(), torch::autograd::grad({scale.eager(x2).sum()}, {x2})[0]));
  }
  scale.expect_same_gradients(leaf({4}));
}

TEST(CallPath, AccumulatorsThatWereTakenAwayAreFoundAgain) {
  Scale scale;
  const T x = leaf({4});
  scale.expect_same_gradients(x);
  // Another dtype drops the accumulator of a leaf, and so does the way back.
  const T data = scale.w.detach().clone();
  scale.w.set_data(data.to(torch::kDouble));
  scale.w.set_data(data);
  scale.expect_same_gradients(x);
  scale.compiled(x).sum().backward();
  EXPECT_TRUE(scale.w.grad().defined());
  EXPECT_EQ(scale.compiled.stats().compiles, 1);
}

TEST(CallPath, DataReplacedUnderTheParameterIsUsed) {
  Scale scale;
  const T x = torch::randn({4});
  scale.compiled(x);
  scale.w.set_data(torch::randn({4}));
  EXPECT_TRUE(same_bits(scale.compiled(x), scale.eager(x)));
  EXPECT_EQ(scale.compiled.stats().compiles, 1);
  scale.expect_same_gradients(x);
}

// The accumulator of a leaf knows its sizes. An entry keeps it from call to call, and no gradient
// of other sizes would fit.
TEST(CallPath, AParameterMayGetOtherSizes) {
  const T w = leaf({4});
  auto scale = compile([w](const T& x) { return x * w; });
  const auto expect_step = [&](int64_t size) {
    const T x = torch::randn({size});
    w.mutable_grad() = T();
    scale(x).sum().backward();
    EXPECT_TRUE(same_bits(w.grad(), x)) << size;
    w.mutable_grad() = T();
    (w * x).sum().backward();
    EXPECT_TRUE(same_bits(w.grad(), x)) << size;
  };
  for (int64_t size : {4, 6, 4, 6, 1, 4}) {
    w.set_data(torch::randn({size}));
    expect_step(size);
  }
  EXPECT_EQ(scale.stats().compiles, 1);
  EXPECT_EQ(scale.stats().variants, 3);
}

// A difference (docs/reference/differences.md): eager itself cannot make the accumulator anew.
TEST(CallPath, AParameterWithOtherSizesNeedsACallFirst) {
  const T w = leaf({4});
  auto scale = compile([w](const T& x) { return x * w; });
  scale(torch::randn({4})).sum().backward();
  w.mutable_grad() = T();
  w.set_data(torch::randn({6}));
  const T x = torch::randn({6});
  EXPECT_THROW((w * x).sum().backward(), c10::Error);
  scale.reset();
  (w * x).sum().backward();
  EXPECT_TRUE(same_bits(w.grad(), x));
}

TEST(CallPath, EdgesThatSomebodyBentAreNotKept) {
  Scale scale;
  const T x = torch::randn({4}), other = leaf({4});
  {
    const T y = scale.compiled(x);
    const auto node = y.grad_fn();
    for (uint32_t i = 0; i < node->num_outputs(); ++i) {
      // Its own topological number is fixed by now; the other leaf counts 0 as well.
      const_cast<torch::autograd::Edge&>(node->next_edge(i)) =
          torch::autograd::impl::gradient_edge(other);
    }
  }
  scale.expect_same_gradients(x);
}

TEST(CallPath, AViewGetsItsHistoryFromAWriteToItsBase) {
  auto twice = compile([](const T& x) { return x * 2; });
  const T base = torch::randn({4}), view = base.slice(0, 0, 2);
  EXPECT_FALSE(twice(view).requires_grad());
  base.mul_(leaf({4}));
  EXPECT_TRUE(twice(view).requires_grad());
  EXPECT_EQ(twice.stats().compiles, 2);
}

TEST(CallPath, ALongChainIsFreedWithoutRecursion) {
  Scale scale;
  T x = torch::randn({4});
  for (int i = 0; i < 300'000; ++i) x = scale.compiled(x);
  x.reset();
}

TEST(CallPath, InferenceTensorsCannotBeSaved) {
  T x;
  {
    c10::InferenceMode mode;
    x = torch::randn({4});
  }
  Scale scale;
  std::string eager, compiled;
  const auto text_of = [](const auto& fn) {
    try {
      fn();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_NE(text_of([&] { scale.eager(x); }), "");
  EXPECT_EQ(text_of([&] { scale.compiled(x); }), text_of([&] { scale.eager(x); }));
}

// Default hooks belong to Python; a stack that is not empty is enough to take the other path.
TEST(CallPath, SavedTensorHooksTakeTheSlowPath) {
  Scale scale;
  const T x = leaf({4});
  scale.expect_same_gradients(x);
  at::SavedTensorDefaultHooks::lazy_initialize();
  at::SavedTensorDefaultHooks::push_hooks(c10::SafePyObject(nullptr, nullptr),
                                          c10::SafePyObject(nullptr, nullptr));
  const T y = scale.compiled(x);
  at::SavedTensorDefaultHooks::pop_hooks();
  const auto got = torch::autograd::grad({y.sum()}, {scale.w, x});
  const auto expected = torch::autograd::grad({scale.eager(x).sum()}, {scale.w, x});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(got[i], expected[i]));
  EXPECT_EQ(scale.compiled.stats().compiles, 1);
}

TEST(CallPath, TheProfilerSeesOneRangePerCallAndPerKernel) {
  static std::map<std::string, int> ranges;
  Scale scale;
  const T x = leaf({4});
  scale.compiled(x).sum().backward();
  ranges.clear();
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& range) {
                                   ++ranges[range.name()];
                                   return std::unique_ptr<at::ObserverContext>();
                                 }).scopes({at::RecordScope::FUNCTION}));
  const T y = scale.compiled(x);
  EXPECT_EQ(ranges["tandem::call"], 1);
  EXPECT_EQ(ranges["tandem::forward"], 1);
  EXPECT_EQ(ranges["tandem::backward"], 0);
  y.sum().backward();
  at::removeCallback(handle);
  EXPECT_EQ(ranges["tandem::call"], 1);
  EXPECT_EQ(ranges["tandem::backward"], 1);
}

TEST(CallPath, EdgesAreSharedBetweenThreads) {
  Scale scale;
  const T x = leaf({4});
  scale.compiled(x);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) scale.expect_same_gradients(x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scale.compiled.stats().compiles, 1);
}

}  // namespace
}  // namespace tandem::test
