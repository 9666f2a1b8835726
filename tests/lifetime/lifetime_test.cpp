/// Who keeps what alive, and for how long; and that compiling and dropping leaves nothing behind.
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/torch.h>

#include <functional>

namespace tandem {
namespace {

using T = at::Tensor;
using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

Weak watch(const T& tensor) { return Weak(tensor.getIntrusivePtr()); }
WeakStorage watch_data(const T& tensor) { return tensor.storage().getWeakStorageImpl(); }

/// Bytes by which the heap grows per cycle, once caches are warm. Zero under a sanitizer, whose
/// allocator answers nothing.
double growth_per_cycle(const std::function<void()>& cycle, int warm_up, int cycles) {
  for (int i = 0; i < warm_up; ++i) cycle();
  const auto before = static_cast<double>(mallinfo2().uordblks);
  for (int i = 0; i < cycles; ++i) cycle();
  return (static_cast<double>(mallinfo2().uordblks) - before) / cycles;
}

TEST(Lifetime, AThousandCompileAndDropCyclesDoNotGrow) {
  T w = torch::ones({4}).set_requires_grad(true);
  const auto cycle = [&] {
    auto f = compile([&](const T& x) { return (x * w).sin().sum(); });
    f(torch::ones({4})).backward();
  };
  EXPECT_LT(growth_per_cycle(cycle, 200, 800), 1024);
}

TEST(Lifetime, NeitherDoFailedAndCancelledCompiles) {
  const WarningSink before = set_warning_sink([](const std::string&) {});
  const auto cycle = [&] {
    auto failing = compile([](const T& x) { return std::get<0>(at::unique_dim(x, 0)); },
                           {.on_unsupported = OnUnsupported::eager});
    failing(torch::ones({4}));
    auto cancelled =
        compile([](const T& x) { return x * 2; },
                {.on_event = [](const Event& event) { return event.stage != "lower"; }});
    EXPECT_THROW(cancelled(torch::ones({4})), UserError);
    auto throwing = compile([](const T& x) { return torch::matmul(x, torch::ones({3, 3})); });
    EXPECT_THROW(throwing(torch::ones({4})), c10::Error);
  };
  EXPECT_LT(growth_per_cycle(cycle, 50, 100), 1024);
  set_warning_sink(before);
}

TEST(Lifetime, NorDoEntriesThatAreResetAndCallsOfOne) {
  auto f = compile([](const T& x) { return (x * 2).exp(); });
  T x = torch::ones({8}).set_requires_grad(true);
  EXPECT_LT(growth_per_cycle(
                [&] {
                  f(x);
                  f.reset();
                },
                100, 200),
            1024);
  EXPECT_LT(growth_per_cycle([&] { f(x); }, 100, 500), 16);
}

TEST(Lifetime, ArgumentsAndResultsAreNotKept) {
  auto f = compile([](const T& x) { return (x * 2).exp(); });
  for (bool grad : {false, true}) {
    T x = torch::ones({8}).set_requires_grad(grad);
    const Weak argument = watch(x);
    T y = f(x);
    const Weak result = watch(y);
    const WeakStorage data = watch_data(y);
    x = T();
    EXPECT_EQ(argument.expired(), !grad);  // the leaf is in the graph of its result
    y = T();
    EXPECT_TRUE(argument.expired());
    EXPECT_TRUE(result.expired());
    EXPECT_TRUE(data.expired());
  }
}

TEST(Lifetime, AnArgumentThatIsAlsoClosedOverIsNotKeptByItsEntry) {
  T w = torch::ones({4});
  auto f = compile([&](const T& x) { return w.defined() ? x * w : x; });
  f(w);
  const Weak argument = watch(w);
  w = T();
  EXPECT_TRUE(argument.expired());
}

TEST(Lifetime, SavedMemoryGoesWithTheGraph) {
  auto f = compile([](const T& x) { return x.exp().sin(); });
  T x = torch::ones({1000}).set_requires_grad(true);
  f(x);
  const size_t before = mallinfo2().uordblks;
  T y = f(x);
  const size_t with_graph = mallinfo2().uordblks;
  y.sum().backward();  // frees what was saved, though y and its node are alive
  const size_t after_backward = mallinfo2().uordblks;
  if (with_graph > before) {  // not under a sanitizer
    EXPECT_GE(with_graph - before, 2 * 4000);
    EXPECT_LT(after_backward, with_graph - 2000 + 4000);  // x.grad() is new
  }
  y = f(x);
  y = T();
  x.mutable_grad() = T();
  EXPECT_LE(mallinfo2().uordblks, before + 2000);
}

TEST(Lifetime, LiftedTensorsAreKeptUntilReset) {
  T w = torch::ones({4}).set_requires_grad(true);
  const Weak lifted = watch(w);
  auto f = compile([w](const T& x) { return x * w; });
  w = T();
  f(torch::ones({4}));
  EXPECT_FALSE(lifted.expired());
  f = {};
  EXPECT_TRUE(lifted.expired());

  T v = torch::ones({4});
  auto g = compile([&](const T& x) { return v.defined() ? x * v : x; });
  g(torch::ones({4}));
  const Weak other = watch(v);
  v = T();
  EXPECT_FALSE(other.expired());
  g.reset();
  EXPECT_TRUE(other.expired());
}

TEST(Lifetime, AGraphOwnsItsEntryAfterTheHandleIsGone) {
  T x = torch::ones({4}).set_requires_grad(true);
  T y;
  {
    T w = torch::full({4}, 3.0);
    auto f = compile([w](const T& a) { return (a * w).sum(); });
    y = f(x);
  }
  y.backward();
  EXPECT_TRUE(x.grad().equal(torch::full({4}, 3.0)));
}

// The call's node becomes the history of the base, and remembers the histories of base and view.
TEST(Lifetime, AFunctionThatWritesATensorBesideAViewOfItGoes) {
  auto owned = std::make_shared<int>();
  const std::weak_ptr<int> function = owned;
  {
    auto f = compile([owned = std::move(owned)](T base, const T& view) {
      base.mul_(2);
      return base * view;
    });
    for (bool backward : {false, true}) {
      const T base = torch::ones({3, 3}, torch::requires_grad()) * 1;
      const T result = f(base, base.t());
      if (backward) result.sum().backward();
    }
  }
  EXPECT_TRUE(function.expired());
}

TEST(Lifetime, AModuleIsKeptByItsFunction) {
  std::weak_ptr<torch::nn::Module> module;
  auto f = [&] {
    torch::nn::Linear net(2, 2);
    module = net.ptr();
    return compile(net);
  }();
  f(torch::ones({1, 2}));
  EXPECT_FALSE(module.expired());
  f = {};
  EXPECT_TRUE(module.expired());
}

TEST(Lifetime, ExplainAndPrepareKeepNoArguments) {
  auto f = compile([](const T& x) { return x * 2; });
  T x = torch::ones({4});
  const Weak argument = watch(x);
  f.explain(x);
  f.prepare(x);
  x = T();
  EXPECT_TRUE(argument.expired());
}

}  // namespace
}  // namespace tandem
