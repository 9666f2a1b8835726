/// explain(): one page that a user understands. The page is compared line by line, without the
/// lines that depend on the machine.
#include "support/environment.h"
#include "support/models.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <sstream>

namespace tandem::test {
namespace {

using T = at::Tensor;

/// Without what differs from machine to machine: thread state, times, places in the source,
/// among them the name of the function.
std::string stable(const std::string& page) {
  std::istringstream in(page);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.find("  thread: ") == 0) line = "  thread: ...";
    if (line.find("A call of ") == 0) line = "A call with these arguments";
    if (const size_t at = line.find("; ");
        at != std::string::npos && line.find(" ms spent compiling") != std::string::npos) {
      line = line.substr(0, at);
    }
    if (const size_t at = line.find(" (");
        at != std::string::npos && line.ends_with(")") && line.find(".cpp:") != std::string::npos) {
      line = line.substr(0, at);
    }
    out += line + "\n";
  }
  return out;
}

const char* const kAboutHostCode =
    "  - what host code decides is decided once, when Tandem traces; it is checked at the 2nd,\n"
    "    4th, 8th, ... call of an entry, with verify_every = 1 at each\n";

TEST(Explain, FirstCallOfATrainingStep) {
  torch::nn::Linear net(4, 2);
  auto step = compile(net, [&](const T& x, const std::vector<T>& more) {
    return std::pair<T, T>((net(x) + more[0]).exp().sum(), x.t());
  });
  EXPECT_EQ(stable(step.explain(torch::ones({3, 4}), {torch::ones({2})})),
            std::string(R"(A call with these arguments
  compiles a new entry (0 exist, 16 allowed)
  because: first call: no entry yet

What is compiled
  a training entry: 7 forward nodes, 9 backward nodes, backend llvm
  arguments
    argument 0     f32[3, 4]
    argument 1[0]  f32[2]
  found in the function, given to the graph as inputs
    parameter "weight"  f32[2, 4]  gets a gradient
    parameter "bias"    f32[2]     gets a gradient
  results
    result 0  f32[]             new, differentiable
    result 1  f32[4, 3] (1, 4)  view of argument 0
  saved for the backward: 2 values, 32 bytes; and 2 inputs by reference
      24 bytes  %1: aten.add.Tensor is computed again from it; it is costly to compute, computing it again would take 1 op
       8 bytes  %arg1_copy: a copy of an input that eager does not keep: aten.add.Tensor is computed again from it
  computed again in the backward: 3 values, 72 bytes
      24 bytes  %2: aten.add.Tensor is cheap, made from %1, %bias
      24 bytes  %3: aten.add.Tensor is cheap, made from %2, %arg1_copy
      24 bytes  %4: aten.exp is cheap, made from %3
  memory over the level before a step: predicted, measured
    forward, at most      52 bytes  not measured
    after the forward     36 bytes  not measured
    backward, at most     68 bytes  not measured

When this entry serves a call
  thread: ...
  constant 0 of the arguments is 1
  argument 0: f32[3, 4]
  argument 1[0]: f32[2]
  1 named module: train()/eval() as they are now, parameters, buffers and sub-modules the same
  2 tensors found in the function: type, strides and requires_grad as above

Worth knowing
)") + kAboutHostCode +
                R"(
So far
  0 calls, 0 hits, 0 compiles, 0 entries
)");
  EXPECT_EQ(step.stats().entries, 0);
}

TEST(Explain, WhatTheBackwardComputesAgain) {
  auto f =
      compile([](const T& x) { return x.cos().cos().sum(); }, {.partitioner = min_cut_recompute});
  const std::string page = stable(f.explain(torch::ones({8}).requires_grad_()));
  EXPECT_NE(page.find(R"(
  saved for the backward: 0 values, 0 bytes; and 1 input by reference
  computed again in the backward: 1 value, 32 bytes
      32 bytes  %1: aten.cos is cheap, made from %arg0
)"),
            std::string::npos)
      << page;
}

TEST(Explain, AHitAndAMiss) {
  tandem::test::EnvironmentVariable measures("TANDEM_MEASURE_PEAK", "on");
  auto f = compile([](const T& x) { return x.neg(); });
  f(torch::ones({2}));
  EXPECT_EQ(stable(f.explain(torch::ones({2}))), std::string(R"(A call with these arguments
  runs entry 0, which exists; nothing is compiled

What is compiled
  an inference entry (no result needs a gradient): 1 node, backend llvm
  arguments
    argument 0  f32[2]
  results
    result 0  f32[2]  new
  memory over the level before a step: predicted, measured
    forward, at most       8 bytes  8 bytes

When this entry serves a call
  thread: ...
  argument 0: f32[2]

Settings
  from the environment, which beats the program: TANDEM_MEASURE_PEAK=on

Worth knowing
  - no module is named: if the function reads a flag of one (train(), eval()), nobody
    guards it: compile(net, fn) names it
)") + kAboutHostCode + R"(
So far
  1 call, 0 hits, 1 compile, 1 entry
  compiled because: first call: no entry yet
)");
  const std::string miss = f.explain(torch::ones({3}));
  EXPECT_EQ(stable(miss).find(R"(A call with these arguments
  adds these sizes to entry 0, which has 1 set of them: the function is traced, no entry is compiled
  because: entry 0: argument 0: size is [3], compiled for [2]
)"),
            0)
      << miss;
  EXPECT_EQ(f.stats().variants, 1);
  auto fixed = compile([](const T& x) { return x.neg(); }, {.dynamic = Dynamic::never});
  fixed(torch::ones({2}));
  const std::string other = fixed.explain(torch::ones({3}));
  EXPECT_EQ(stable(other).find(R"(A call with these arguments
  compiles a new entry (1 exists, 16 allowed)
  because: entry 0: argument 0: size is [3], compiled for [2]
)"),
            0)
      << other;
  EXPECT_NE(other.find("  - with dynamic = never every set of sizes gets an entry of its own, at "
                       "most 16\n    (max_entries): leave it at automatic\n"),
            std::string::npos)
      << other;
  EXPECT_NE(other.find("not at their default: dynamic = never\n"), std::string::npos) << other;
}

TEST(Explain, SizesOfAnEntryAreSymbols) {
  auto f = compile([](const T& x, const T& y, int64_t n, double s) {
    return std::pair(x.matmul(y) * n * s, x.t().sum(1));
  });
  for (int64_t n : {2, 7, 4}) f(torch::ones({n, 8}), torch::ones({8, n + 1}).t().t(), n, 0.5 * n);
  const auto part = [](const std::string& page, const std::string& from, const std::string& to) {
    const size_t start = page.find(from);
    return page.substr(start, page.find(to, start) - start);
  };
  const std::string page = stable(f.explain(torch::ones({7, 8}), torch::ones({8, 8}), 7, 3.5));
  EXPECT_EQ(part(page, "  runs entry", "\nWhat"),
            "  runs entry 0, which exists; nothing is compiled\n");
  EXPECT_EQ(part(page, "  arguments\n", "  memory"), R"(  arguments
    argument 0  f32[s0, 8]
    argument 1  f32[8, s1]
  results
    result 0  f32[s0, s1]  new
    result 1  f32[8]       new
  sizes: 3 sets of them so far
    s0: 2 to 7
    s1: 3 to 8
)");
  EXPECT_NE(page.find("  constant 0 of the arguments is s0\n"
                      "  constant 1 of the arguments is a number that varies\n"
                      "  argument 0: f32[s0, 8]\n"
                      "  argument 1: f32[8, s1]\n"),
            std::string::npos)
      << page;
  const std::string report = f.report();
  EXPECT_NE(report.find("entry 0: inference entry"), std::string::npos) << report;
  EXPECT_EQ(report.find("entry 1"), std::string::npos) << report;
  EXPECT_NE(report.find("sizes: 3 sets of them so far\n  s0: 2 to 7\n"), std::string::npos)
      << report;
  EXPECT_NE(report.find("f32[s0, s1]"), std::string::npos) << report;
  // One more set of sizes, as it would be.
  const std::string more = stable(f.explain(torch::ones({9, 8}), torch::ones({8, 3}), 9, 0.5));
  EXPECT_NE(more.find("  adds these sizes to entry 0, which has 3 sets of them"),
            std::string::npos);
  EXPECT_NE(more.find("  sizes: 4 sets of them so far\n    s0: 2 to 9\n    s1: 3 to 8\n"),
            std::string::npos)
      << more;
}

TEST(Explain, OtherOpsAtOtherSizes) {
  auto f = compile([](const T& x) { return x.size(0) % 2 == 0 ? x.sin() : x.cos(); });
  f(torch::ones({4}));
  const std::string page = f.explain(torch::ones({3}));
  EXPECT_EQ(stable(page).find(R"(A call with these arguments
  compiles a new entry (1 exists, 16 allowed)
  because: entry 0: argument 0: size is [3], compiled for [4]; it calls cos where entry 0 calls sin)"),
            0)
      << page;
}

TEST(Explain, OtherTensorsAtOtherSizes) {
  std::map<int64_t, T> masks{{2, torch::ones({2})}, {3, torch::ones({3})}};
  auto f = compile([&](const T& x) { return x * masks[x.size(0)]; });
  f(torch::ones({2}));
  EXPECT_EQ(stable(f.explain(torch::ones({3}))).find(R"(A call with these arguments
  compiles a new entry (1 exists, 16 allowed)
  because: entry 0: argument 0: size is [3], compiled for [2]; it reads other tensors than entry 0
)"),
            0)
      << f.explain(torch::ones({3}));
}

// Transposed alike at every size: the strides follow from the sizes.
TEST(Explain, StridesThatFollowFromSizes) {
  auto f = compile([](const T& x) { return x * 2; });
  for (int64_t n : {3, 5}) f(torch::ones({4, n}).t());
  EXPECT_NE(f.explain(torch::ones({4, 3}).t()).find("argument 0  f32[s0, 4] (1, s0)"),
            std::string::npos)
      << f.explain(torch::ones({4, 3}).t());
  for (int64_t n : {3, 5}) f(torch::ones({4, 2 * n}).slice(1, 0, n));
  EXPECT_EQ(f.stats().entries, 1);
  EXPECT_NE(f.explain(torch::ones({4, 3}).t()).find("argument 0  f32[s0, s1] (s2, s3)"),
            std::string::npos)
      << f.explain(torch::ones({4, 3}).t());
}

TEST(Explain, SaysWhichParametersNobodyGuards) {
  ConvNet net;
  auto f = compile([&](const T& x) { return net->forward(x); });
  const std::string page = f.explain(torch::rand({2, 3, 8, 8}));
  EXPECT_NE(page.find("  - closed-over tensor 0 and 8 more require grad but belong to no named "
                      "module. If a module holds them, nobody guards its\n    train()/eval(): "
                      "compile(net, fn) names it"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("written by the call"), std::string::npos);
  EXPECT_NE(page.find("and 3 more parameters, buffers and closed-over tensors"), std::string::npos);
  EXPECT_LT(std::count(page.begin(), page.end(), '\n'), 60) << page;
}

TEST(Explain, OneNamedModuleIsOnePageHoweverLarge) {
  GptOptions o;
  o.blocks = 4;
  Gpt net(o);
  auto f = compile(net, [&](const T& ids) { return net->forward(ids).sum(); });
  const std::string page = f.explain(torch::zeros({1, o.length}, torch::kLong));
  EXPECT_LT(std::count(page.begin(), page.end(), '\n'), 60) << page;
}

TEST(Explain, WhatCannotBeCompiledOrIsTooMuch) {
  auto f = compile([](const T& x) { return std::get<0>(at::unique_dim(x, 0)); });
  EXPECT_EQ(stable(f.explain(torch::ones({2}))).find(R"(A call with these arguments
  is an error, since it cannot be compiled:
    trace: aten.unique_dim has a result whose size depends on data
      at:       )" + std::string(__FILE__)),
            0);
  EXPECT_THROW(f(torch::ones({2})), UnsupportedError);
  EXPECT_NE(f.explain(torch::ones({2})).find("could not be compiled (remembered until reset())"),
            std::string::npos);
  auto wrong = compile([](const T& x) { return torch::matmul(x, torch::ones({3, 3})); });
  EXPECT_NE(wrong.explain(torch::ones({2})).find("\n  raises:\n    mat1 and mat2 shapes"),
            std::string::npos)
      << wrong.explain(torch::ones({2}));
  auto full =
      compile([](const T& x) { return x * 2; }, {.dynamic = Dynamic::never, .max_entries = 1});
  full(torch::ones({1}));
  EXPECT_EQ(stable(full.explain(torch::ones({2}))).find(R"(A call with these arguments
  runs eagerly: another entry is needed, and max_entries allows 1
  because: entry 0: argument 0: size is [2], compiled for [1]
)"),
            0);
}

TEST(Explain, OptionsAndEnvironment) {
  test::EnvironmentVariable variable("TANDEM_MAX_ENTRIES", "3");
  T w = torch::ones({2});
  auto f = compile([&](const T& x) { return x * w; },
                   {.closes_over = {&w}, .guard_on = [] { return 1; }, .verify_every = 5});
  const std::string page = f.explain(torch::ones({2}));
  EXPECT_NE(page.find(R"(
Settings
  not at their default: max_entries = 3, closes_over (1 variable), guard_on, verify_every = 5
  from the environment, which beats the program: TANDEM_MAX_ENTRIES=3
)"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("  closes_over[0] refers to the same tensor (f32[2])\n"), std::string::npos);
}

}  // namespace
}  // namespace tandem::test
