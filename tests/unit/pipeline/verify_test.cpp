/// verify_every = N: each so many calls of an entry the function is run again and compared.
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

TEST(Verify, LooksAtEveryNthCall) {
  bool sine = true;
  auto f = compile([&](const T& x) { return sine ? x.sin() : x.cos(); }, {.verify_every = 3});
  T x = torch::ones({2});
  f(x);
  sine = false;
  EXPECT_TRUE(f(x).allclose(x.sin())) << "nobody looks";
  // Once it is known, every call says so.
  EXPECT_THROW(f(x), UserError);
  EXPECT_THROW(f(x), UserError);
  EXPECT_EQ(f.stats().checks, 2);
  sine = true;
  EXPECT_TRUE(f(x).allclose(x.sin()));
  EXPECT_TRUE(f(x).allclose(x.sin()));
  EXPECT_EQ(f.stats().checks, 3);
  EXPECT_EQ(f.stats().traces, 1);
  EXPECT_EQ(f.stats().entries, 1);
  sine = false;
  f.reset();
  EXPECT_TRUE(f(x).allclose(x.cos()));
}

TEST(Verify, HostCounter) {
  int64_t calls = 0;
  auto f = compile([&](const T& x) { return x + ++calls; }, {.verify_every = 3});
  T x = torch::ones({2});
  f(x);
  f(x);
  const std::string text = error_text<UserError>([&] { f(x); });
  EXPECT_NE(text.find(": add other=1, now 2\n"), std::string::npos) << text;
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
  EXPECT_EQ(gpt.stats().traces, 3);
  EXPECT_EQ(gpt.stats().checks, 6);
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
  EXPECT_EQ(reports, 2);
}

TEST(Verify, SeveralThreads) {
  torch::nn::Linear net(3, 2);
  auto f = compile(net, {.dynamic = Dynamic::never, .verify_every = 2});
  std::vector<std::thread> threads;
  for (int64_t i = 1; i <= 3; ++i) {
    threads.emplace_back([&, i] {
      T x = torch::ones({i, 3});
      for (int n = 0; n < 4; ++n) EXPECT_TRUE(f(x).equal(net->forward(x)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.stats().traces, 3);
  EXPECT_EQ(f.stats().checks, 6);
}

}  // namespace
}  // namespace tandem::test
