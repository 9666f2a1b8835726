/// verify_every: host state that no guard watches is reported, and nothing else is.
#include "base/error.h"
#include "support/error_text.h"
#include "support/models.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace tandem::test {
namespace {

using T = at::Tensor;
using test::error_text;

const char* const kRemedy =
    "\n  cause:    host code depends on something that no guard watches"
    "\n  remedy:   name it: a module whose flags it reads (compile(net, fn) or Options::modules), "
    "a tensor variable that is assigned again (Options::closes_over), anything else "
    "(Options::guard_on); reset() compiles anew";

TEST(Verify, HostBranchOnAnUnnamedFlag) {
  bool sine = true;
  const std::string line = base::str("  # ", __FILE__, ":", __LINE__ + 1);
  auto f = compile([&](const T& x) { return sine ? x.sin() : x.cos(); },
                   {.backend = "eager", .verify_every = 2});
  T x = torch::ones({2});
  f(x);
  sine = false;
  EXPECT_EQ(error_text<UserError>([&] { f(x); }),
            std::string("call: verify_every: the function is not what was compiled: node 0 of 1 "
                        "differs"
                        "\n  compiled: %0: f32[2] = aten.sin(%arg0)") +
                line + "\n  now:      %0: f32[2] = aten.cos(%arg0)" + line + kRemedy);
  // Only every second call is looked at; the entry is still there.
  EXPECT_TRUE(f(x).equal(x.sin()));
  EXPECT_EQ(f.stats().traces, 2);
  EXPECT_EQ(f.stats().entries, 1);
  sine = true;
  EXPECT_TRUE(f(x).equal(x.sin()));
  EXPECT_EQ(f.stats().traces, 3);
}

TEST(Verify, HostCounter) {
  int64_t calls = 0;
  auto f = compile([&](const T& x) { return x + ++calls; }, {.verify_every = 3});
  T x = torch::ones({2});
  f(x);
  f(x);
  const std::string text = error_text<UserError>([&] { f(x); });
  EXPECT_NE(text.find("compiled: %0: f32[2] = aten.add.Scalar(%arg0, 1, 1)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("now:      %0: f32[2] = aten.add.Scalar(%arg0, 2, 1)"), std::string::npos)
      << text;
}

TEST(Verify, ReboundHandle) {
  T mask = torch::ones({2}), before = mask;
  auto f = compile([&](const T& x) { return x * mask; }, {.verify_every = 1});
  T x = torch::ones({2});
  f(x);
  f(x);
  mask = torch::zeros({2});
  const std::string text = error_text<UserError>([&] { f(x); });
  EXPECT_NE(text.find("closed-over tensor 0 differs\n  compiled: lifted 0, f32[2], tensor object"),
            std::string::npos)
      << text;
  f.reset();
  EXPECT_TRUE(f(x).equal(x * mask));
}

TEST(Verify, ParameterMemberReboundBesideTheRegistry) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net, [net](const T& x) mutable { return net(x); }, {.verify_every = 2});
  T x = torch::ones({1, 2});
  f(x);
  T registered = net->weight;
  net->weight = torch::zeros({2, 2}).set_requires_grad(true);  // the registry keeps the other
  const std::string text = error_text<UserError>([&] { f(x); });
  EXPECT_NE(text.find("compiled: param \"weight\", f32[2, 2]"), std::string::npos) << text;
  EXPECT_NE(text.find("now:      lifted "), std::string::npos) << text;
}

TEST(Verify, FlagOfAnUnnamedModule) {
  torch::nn::Dropout drop(0.5);
  auto f = compile([&](const T& x) { return drop(x) + 1; }, {.verify_every = 1});
  T x = torch::ones({4});
  f(x);
  drop->eval();
  const std::string text = error_text<UserError>([&] { f(x); });
  EXPECT_NE(text.find("node 0 of"), std::string::npos) << text;
  drop->train();
  f(x);
}

TEST(Verify, ConstantResultsAndAliasingCount) {
  int64_t number = 1;
  auto f = compile([&](const T& x) { return std::pair<T, int64_t>(x * 2, number); },
                   {.verify_every = 1});
  f(torch::ones({2}));
  number = 7;
  EXPECT_NE(error_text<UserError>([&] {
              f(torch::ones({2}));
            }).find("constant 0 of the results differs\n  compiled: 1\n  now:      7"),
            std::string::npos);
  double real = 0.1;
  auto h =
      compile([&](const T& x) { return std::pair<T, double>(x * 2, real); }, {.verify_every = 1});
  h(torch::ones({2}));
  real = 0.1 + 1e-16;  // to the last digit
  EXPECT_NE(error_text<UserError>([&] { h(torch::ones({2})); })
                .find("constant 0 of the results differs\n  compiled: 0.1\n  now:      "
                      "0.1000000000000001"),
            std::string::npos);
  bool copy = false;
  auto g = compile([&](const T& x) { return copy ? x.view({2, 1}) : x; }, {.verify_every = 1});
  g(torch::ones({2}));
  copy = true;
  EXPECT_NE(error_text<UserError>([&] {
              g(torch::ones({2}));
            }).find("what a call does to arguments and results differs"),
            std::string::npos);
}

TEST(Verify, LargeConstantOfTheHost) {
  std::vector<float> numbers(100, 1.0f);
  auto f = compile([&](const T& x) { return x * torch::tensor(numbers); }, {.verify_every = 1});
  T x = torch::ones({100});
  f(x);
  f(x);
  numbers[99] = 2.0f;
  const std::string text = error_text<UserError>([&] { f(x); });
  EXPECT_NE(text.find("a constant of the host differs\n  compiled: element 99 is 1\n  now:      "
                      "element 99 is 2\n"),
            std::string::npos)
      << text;
}

TEST(Verify, AReportLeavesEverythingAsItWas) {
  torch::manual_seed(1);
  bool twice = false;
  T counter = torch::zeros({1});
  auto f = compile(
      [&](const T& x) {
        counter.add_(twice ? 2 : 1);
        return torch::dropout(x, 0.5, true);
      },
      {.verify_every = 1});
  T x = torch::ones({4}).set_requires_grad(true);
  f(x);
  twice = true;
  const T state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const auto version = counter._version();
  EXPECT_THROW(f(x), UserError);
  EXPECT_EQ(counter.item<float>(), 1);
  EXPECT_EQ(counter._version(), version);
  EXPECT_TRUE(state.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
  EXPECT_TRUE(c10::GradMode::is_enabled());
  T y = torch::ones({2}) + 1;
  EXPECT_EQ(y.sum().item<float>(), 4);
}

struct Cube : torch::autograd::Function<Cube> {
  static T forward(torch::autograd::AutogradContext* context, const T& x) {
    context->save_for_backward({x});
    return x.pow(3);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list tangents) {
    return {tangents[0] * 3 * context->get_saved_variables()[0].pow(2)};
  }
};

TEST(Verify, AnUnchangedFunctionNeverReports) {
  GptOptions o;
  o.blocks = 1;
  Gpt net(o);
  auto gpt = compile(net, [&](const T& ids) { return net->forward(ids).logsumexp(-1).mean(); },
                     {.verify_every = 1});
  ConvNet conv;
  auto images = compile(conv, {.verify_every = 1});
  T bias = torch::ones({12}), scale = torch::full({12}, 2.0).set_requires_grad(true);
  auto custom =
      compile([=](const T& x) { return Cube::apply(x * scale) + bias; }, {.verify_every = 1});
  auto constants = compile(
      [](const T& x) {
        return x * torch::tensor({1.0f, 2.0f}) + torch::arange(2) + torch::rand(2);
      },
      {.verify_every = 1});
  auto views = compile([](const T& x) { return x.chunk(2); }, {.verify_every = 1});
  for (int i = 0; i < 3; ++i) {
    for (int64_t batch : {1, 2}) {
      gpt(torch::randint(0, o.vocabulary, {batch, o.length})).backward();
      images(torch::rand({batch + 1, 3, 8, 8})).sum().backward();
    }
    {
      torch::NoGradGuard guard;
      gpt(torch::randint(0, o.vocabulary, {1, o.length}));
    }
    custom(torch::rand({12}).set_requires_grad(true)).sum().backward();
    constants(torch::ones({2}));
    views(torch::ones({4}));
  }
  EXPECT_EQ(gpt.stats().entries, 3);
  EXPECT_EQ(gpt.stats().traces, 9);
}

// Calls that alternate must not leave one entry unseen.
TEST(Verify, EveryEntryHasItsTurn) {
  bool sine = true;
  auto f = compile([&](const T& x) { return x.size(0) == 1 && !sine ? x.cos() : x.sin(); },
                   {.verify_every = 2});
  T one = torch::ones({1}), two = torch::ones({2});
  f(one);
  f(two);
  sine = false;
  int reports = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      f(one);
    } catch (const UserError&) {
      ++reports;
    }
    f(two);
  }
  EXPECT_EQ(reports, 1);
}

TEST(Verify, SeveralThreads) {
  torch::nn::Linear net(3, 2);
  auto f = compile(net, {.verify_every = 2});
  std::vector<std::thread> threads;
  for (int64_t i = 1; i <= 3; ++i) {
    threads.emplace_back([&, i] {
      T x = torch::ones({i, 3});
      for (int n = 0; n < 4; ++n) EXPECT_TRUE(f(x).equal(net->forward(x)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.stats().traces, 3 + 6);
}

}  // namespace
}  // namespace tandem::test
