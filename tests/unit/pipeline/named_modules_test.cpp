/// Modules that `compile` is given: every way to name them, what is noticed of them, and a warning
/// where none is named.
#include "base/error.h"
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using T = at::Tensor;

/// Takes warnings for a scope.
class Warnings {
 public:
  Warnings()
      : before_(set_warning_sink([this](const std::string& line) { all.push_back(line); })) {}
  ~Warnings() { set_warning_sink(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> all;

 private:
  WarningSink before_;
};

struct NetImpl : torch::nn::Module {
  NetImpl()
      : fc(register_module("fc", torch::nn::Linear(2, 2))),
        drop(register_module("drop", torch::nn::Dropout())) {}
  T forward(const T& x) { return drop(fc(x)); }
  /// A handle that is a member names its own module.
  Compiled<T(T)> compiled() {
    return compile(*this, [this](const T& x) { return forward(x) + 1; });
  }
  torch::nn::Linear fc;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Net);

T sample() { return torch::arange(6, torch::kFloat).reshape({3, 2}) - 2; }

std::string names_of(const Entry& entry) {
  std::string names;
  for (const auto& input : entry.signature().inputs) names += ir::to_string(input.role) + " ";
  return names;
}

/// Modes are guarded and parameters have names.
template <class F, class Module>
void expect_named(F& f, Module& module) {
  const Warnings warnings;
  module.train();
  f(sample());
  module.eval();
  f(sample());
  ASSERT_EQ(f.stats().entries, 2);
  EXPECT_NE(f.stats().misses[1].reason.find("is in eval mode, compiled in training mode"),
            std::string::npos)
      << f.stats().misses[1];
  EXPECT_NE(names_of(f.entries()[0]).find("fc.weight\""), std::string::npos)
      << names_of(f.entries()[0]);
  EXPECT_TRUE(warnings.all.empty());
}

TEST(NamedModules, InEveryWay) {
  Net holder;
  auto by_holder = compile(holder, [&](const T& x) { return holder(x); });
  expect_named(by_holder, *holder);
  auto by_pointer = compile(holder.ptr(), [&](const T& x) { return holder(x); });
  expect_named(by_pointer, *holder);
  NetImpl stack;
  auto by_reference = compile(stack, [&](const T& x) { return stack.forward(x); });
  expect_named(by_reference, stack);
  auto by_plain_pointer = compile(&stack, [&](const T& x) { return stack.forward(x); });
  expect_named(by_plain_pointer, stack);
  auto inside = stack.compiled();
  expect_named(inside, stack);
  auto forward = compile(stack);
  expect_named(forward, stack);
  const NetImpl& constant = stack;
  auto by_constant = compile(constant, [&](const T& x) { return stack.forward(x); });
  expect_named(by_constant, stack);
}

TEST(NamedModules, SeveralAtOnce) {
  Net holder;
  NetImpl stack;
  auto tied =
      compile(std::tie(holder, stack), [&](const T& x) { return holder(stack.forward(x)); });
  expect_named(tied, *holder);
  stack.eval();
  tied(sample());
  EXPECT_EQ(tied.stats().entries, 3);
  auto mixed = compile(std::make_tuple(holder, &stack, holder.ptr()),
                       [&](const T& x) { return holder(stack.forward(x)); });
  expect_named(mixed, stack);
}

TEST(NamedModules, OptimizersAreRefusedSoFar) {
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto fn = [&](const T& x) { return net(x); };
  const std::string text =
      error_text<UnsupportedError>([&] { compile(std::tie(net, optimizer), fn); });
  EXPECT_TRUE(text.starts_with("options: optimizers is not built yet")) << text;
  EXPECT_EQ(error_text<UnsupportedError>([&] { compile(std::make_tuple(net, &optimizer), fn); }),
            text);
  EXPECT_EQ(error_text<UnsupportedError>([&] { compile(std::tuple{&optimizer}, fn); }), text);
}

TEST(NamedModules, AreOwnedOnlyByWhatOwnsThem) {
  std::weak_ptr<NetImpl> seen;
  Compiled<T(T)> f;
  {
    Net net;
    seen = net.ptr();
    f = compile(net, [&net](const T& x) { return net(x); });
    EXPECT_EQ(seen.use_count(), 2);
  }
  EXPECT_FALSE(seen.expired()) << "the handle owns it";
  f = {};
  EXPECT_TRUE(seen.expired());
  auto on_heap = std::make_shared<NetImpl>();
  seen = on_heap;
  f = compile(*on_heap, [p = on_heap.get()](const T& x) { return p->forward(x); });
  EXPECT_EQ(seen.use_count(), 1) << "named by reference: not owned";
}

TEST(NamedModules, OneThatIsReplacedIsNoticed) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net, [&](const T& x) { return net(x); });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(f(sample()).equal(net(sample())));
  net = torch::nn::Linear(2, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(f(sample()).equal(net(sample())));
  EXPECT_EQ(f.stats().compiles, 2);
  EXPECT_EQ(f.stats().evictions, 1);
  EXPECT_EQ(f.stats().misses[1].reason,
            "entry 0: the module that compile() named is no longer held by the program, so the "
            "function may use another; name that one: compile(net, fn)");
}

TEST(NamedModules, OneThatIsReplacedInATuple) {
  torch::nn::Linear first(2, 2), second(2, 2);
  auto f = compile(std::tie(first, second), [&](const T& x) { return second(first(x)); });
  f(sample());
  second = torch::nn::Linear(2, 1);
  EXPECT_TRUE(f(sample()).equal(second(first(sample()))));
  EXPECT_TRUE(f.stats().misses[1].reason.starts_with("entry 0: module \"1\" that compile() named"))
      << f.stats().misses[1];
}

// Whoever gives the module away once and for all pays one compile, and the handle keeps it.
TEST(NamedModules, OneThatOnlyTheHandleKeeps) {
  torch::nn::Linear net(2, 2);
  torch::nn::LinearImpl* plain = net.get();
  auto f = compile(net, [plain](const T& x) { return plain->forward(x); });
  f(sample());
  net = torch::nn::Linear(nullptr);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(f(sample()).equal(plain->forward(sample())));
  EXPECT_EQ(f.stats().compiles, 2);
  auto g = compile(torch::nn::Linear(2, 2));
  for (int i = 0; i < 3; ++i) g(sample());
  EXPECT_EQ(g.stats().compiles, 1);
}

// The function holds it itself, and goes on with it, as in eager.
TEST(NamedModules, OneThatTheFunctionHoldsIsNotReplaced) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net, [net](const T& x) mutable { return net(x); });
  const T before = f(sample());
  net = torch::nn::Linear(2, 3);
  EXPECT_TRUE(f(sample()).equal(before));
  EXPECT_EQ(f.stats().compiles, 1);
}

// ---- no module is named

TEST(UnnamedModules, TrainingIsWarnedOfOnce) {
  const Warnings warnings;
  torch::nn::BatchNorm1d norm(2);
  torch::nn::Dropout drop;
  const std::string line = base::str(__FILE__, ":", __LINE__ + 1);
  auto f = compile([&](const T& x) { return drop(norm(x)); }, {.name = "step"});
  f(sample());
  f(torch::rand({4, 2}));
  ASSERT_EQ(warnings.all.size(), 1U);
  EXPECT_EQ(warnings.all[0],
            "tandem: warning: step calls batch_norm in training mode, and no module is named: a "
            "later eval() is not noticed at once\n  at:     " +
                line +
                "\n  remedy: name the module, compile(net, fn): then train() and eval() are "
                "guarded");
}

TEST(UnnamedModules, GradientsOfGradientsDoNotWarnAgain) {
  const Warnings warnings;
  torch::nn::Dropout drop;
  auto f = compile([&](const T& x) { return drop(x.sin()).sum(); });
  T x = sample().set_requires_grad(true);
  torch::autograd::grad({f(x)}, {x}, {}, true, true)[0].sum().backward();
  EXPECT_EQ(warnings.all.size(), 1U);
}

TEST(UnnamedModules, WhereTheModeMakesNoDifferenceNobodyIsWarned) {
  const Warnings warnings;
  torch::nn::BatchNorm1d norm(2), plain(torch::nn::BatchNormOptions(2).track_running_stats(false));
  torch::nn::Dropout none(0.0), drop;
  torch::nn::LSTM lstm(2, 2);
  norm->eval();
  drop->eval();
  auto f = compile(
      [&](const T& x) { return std::get<0>(lstm(drop(none(norm(plain(x)))).unsqueeze(0))); });
  f(sample());
  auto named = compile(drop, [&](const T& x) { return drop(x); });
  drop->train();
  named(sample());
  EXPECT_TRUE(warnings.all.empty()) << warnings.all[0];
}

}  // namespace
}  // namespace tandem::test
