/// mark_dynamic and mark_static: what they steer, and what they say.
#include "support/environment.h"
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace tandem::test {
namespace {

using T = at::Tensor;

TEST(MarkedSizes, DimensionsAndRangesThatAreNone) {
  const T x = torch::ones({4, 8}), number = torch::ones({}), vector = torch::ones({3});
  EXPECT_EQ(error_text<UserError>([&] { mark_dynamic(x, 2); }),
            "options: mark_dynamic of dimension 2: the tensor is f32[4, 8] and has 2 dimensions\n"
            "  remedy: give one of -2 to 1");
  EXPECT_EQ(error_text<UserError>([&] { mark_static(vector, -2); }),
            "options: mark_static of dimension -2: the tensor is f32[3] and has 1 dimension\n"
            "  remedy: give one of -1 to 0");
  EXPECT_EQ(error_text<UserError>([&] { mark_static(number, 0); }),
            "options: mark_static of dimension 0: the tensor is f32[] and has 0 dimensions");
  EXPECT_EQ(error_text<UserError>([&] { mark_dynamic(T(), 0); }),
            "options: mark_dynamic of an undefined tensor\n"
            "  remedy: mark the tensor that is passed to the compiled function");
  EXPECT_EQ(error_text<UserError>([&] { mark_dynamic(x, 0, {.min = 8, .max = 2}); }),
            "options: mark_dynamic of dimension 0 has the range {8, 2}: expected 0 <= min <= max\n"
            "  remedy: leave the range out, or give the smallest and the largest size");
  EXPECT_EQ(error_text<UserError>([&] { mark_dynamic(x, -2, {.min = -1}); }),
            "options: mark_dynamic of dimension 0 has the range {-1, none}: expected 0 <= min <= "
            "max\n"
            "  remedy: leave the range out, or give the smallest and the largest size");
  EXPECT_EQ(error_text<UserError>([&] { mark_dynamic(x, 0, {.min = 8}); }),
            "options: mark_dynamic of dimension 0: its size 4 is outside of the range {8, none}\n"
            "  remedy: give a range that contains it");
  auto inside = compile([](const T& t) {
    mark_static(t, 0);
    return t * 2;
  });
  EXPECT_EQ(error_text<UserError>([&] { inside(x); }),
            "options: mark_static is called inside a function that is being traced\n"
            "  remedy: mark the tensor before the call");
}

/// Notes what each compile was told of sizes.
struct Notes final : Backend {
  std::string_view name() const override { return "notes"; }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    vary.push_back(context.sizes_vary);
    return backend("eager")->compile(graph, context);
  }
  std::vector<bool> vary;
};

TEST(MarkedSizes, TheFirstCompileIsForAnySizeWhereOneIsMarked) {
  const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  const auto vary = [](const Options& options, bool mark) {
    auto notes = std::make_shared<Notes>();
    Options own = options;
    own.backend = notes;
    auto f = compile([](const T& x) { return (x * x).sum(); }, own);
    for (int64_t n : {3, 4, 3, 5}) {
      const T x = torch::ones({n}).requires_grad_();
      if (mark) mark_dynamic(x, 0);
      f(x).backward();
    }
    return notes->vary;
  };
  using Flags = std::vector<bool>;
  // A forward and a backward at each of three sizes.
  EXPECT_EQ(vary({}, false), (Flags{false, false, true, true, true, true}));
  EXPECT_EQ(vary({}, true), (Flags(6, true)));
  EXPECT_EQ(vary({.dynamic = Dynamic::always}, false), (Flags(6, true)));
  EXPECT_EQ(vary({.dynamic = Dynamic::never}, true), (Flags(6, false)));
}

// A backward for other tangents, for an autocast state, and gradients of gradients are compiled
// later.
TEST(MarkedSizes, WhatIsCompiledInTheBackwardIsForAnySizeToo) {
  const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  auto notes = std::make_shared<Notes>();
  auto f = compile([](const T& x) { return std::vector<T>{x.sin(), x.cos()}; }, {.backend = notes});
  f(torch::ones({2}).requires_grad_());
  const T x = torch::ones({3}).requires_grad_();
  const size_t before = notes->vary.size();
  f(x)[1].sum().backward();
  const T first = torch::autograd::grad({f(x)[0].sum()}, {x}, {}, std::nullopt, true)[0];
  first.sum().backward();
  ASSERT_GT(notes->vary.size(), before + 3);
  for (size_t i = before; i < notes->vary.size(); ++i) EXPECT_TRUE(notes->vary[i]) << i;
}

TEST(MarkedSizes, OutsideOfTheRangeIsAnotherEntry) {
  auto f = compile([](const T& x) { return x * 2; });
  const T x = torch::ones({4, 3});
  mark_dynamic(x, 0, {.min = 2, .max = 8});
  f(x);
  f(torch::ones({8, 3}));
  f(torch::ones({2, 5}));
  EXPECT_EQ(f.stats().entries, 1);
  f(torch::ones({9, 3}));
  EXPECT_EQ(f.stats().entries, 2);
  EXPECT_EQ(f.stats().misses.back().reason.find("\n"), std::string::npos);
  f(torch::ones({20, 3}));
  f(torch::ones({1, 3}));
  EXPECT_EQ(f.stats().entries, 2);
  EXPECT_EQ(f.stats().variants, 6);
}

TEST(MarkedSizes, AStaticSizeThatDiffersIsAnotherEntry) {
  auto f = compile([](const T& x) { return x * 2; });
  const T x = torch::ones({4, 3});
  mark_static(x, -1);
  f(x);
  f(torch::ones({5, 3}));
  EXPECT_EQ(f.stats().entries, 1);
  f(torch::ones({5, 6}));
  f(torch::ones({7, 6}));
  EXPECT_EQ(f.stats().entries, 2);
  // The mark of a later call counts, too.
  const T y = torch::ones({7, 9});
  mark_static(y, 1);
  f(y);
  EXPECT_EQ(f.stats().entries, 3);
  f(torch::ones({8, 9}));
  EXPECT_EQ(f.stats().entries, 3) << "joins one that allows it";
}

TEST(MarkedSizes, TheLastMarkOfADimensionCounts) {
  auto f = compile([](const T& x) { return x * 2; });
  const T x = torch::ones({4});
  mark_static(x, 0);
  mark_dynamic(x, 0);
  f(x);
  f(torch::ones({5}));
  EXPECT_EQ(f.stats().entries, 1);
}

TEST(MarkedSizes, APromiseThatTheFunctionDoesNotKeep) {
  T written = torch::zeros({1});
  auto f = compile([&](const T& x, const T& y) {
    written.add_(1);
    return x.size(0) % 4 == 0 ? x.sin() + y : x.cos() + y;
  });
  const T x = torch::ones({8, 3}), y = torch::ones({3});
  mark_dynamic(x, 0, {.min = 1});
  f(x, y);
  f(torch::ones({4, 3}), y);
  EXPECT_EQ(written.item<float>(), 2);
  const auto text = [&](const T& a, const T& b) { return error_text<UserError>([&] { f(a, b); }); };
  const std::string error = text(torch::ones({6, 3}), y);
  EXPECT_EQ(
      error.substr(0, error.find("\n  at: ")),
      "call: a size that mark_dynamic named makes the function do something else: dimension 0 "
      "of argument 0 (6, compiled for 8)\n"
      "  cause:    it calls cos where entry 0 calls sin");
  EXPECT_NE(error.find("marked_sizes_test.cpp:"), std::string::npos) << error;
  EXPECT_NE(
      error.find("\n  remedy:   call the same ops at every size, give mark_dynamic a range in "
                 "which the function does, or leave the mark out"),
      std::string::npos)
      << error;
  EXPECT_EQ(written.item<float>(), 2) << "before any effect";
  EXPECT_EQ(text(torch::ones({6, 3}), y), error);  // remembered
  EXPECT_EQ(f.stats().entries, 1);
  // At a size of 1 much is different, and sizes that were not marked may be the reason.
  EXPECT_EQ(text(torch::ones({1, 3}), y), "(no error)");
  EXPECT_EQ(f.stats().entries, 2);
  EXPECT_EQ(text(torch::ones({6, 5}), torch::ones({5})), "(no error)");
}

}  // namespace
}  // namespace tandem::test
