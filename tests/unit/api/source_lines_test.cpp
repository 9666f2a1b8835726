/// Source lines as a user meets them: graphs, saved values, explain(), errors, the switch.
#include "support/environment.h"
#include "support/error_text.h"
#include "support/node_line.h"
#include "tandem/tandem.h"
#include "tracing/lines/debug_info.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem {
namespace {

using T = at::Tensor;
using test::EnvironmentVariable;
using test::lines_of;
using Lines = std::vector<std::string>;

#define HERE test::line_of(__FILE__, __LINE__)

T leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

TEST(SourceLinesOfACall, GraphsSavedValuesAndExplainShowThem) {
  std::string sin, tanh;
  const auto function = [&](const T& x) {
    T y = (sin = HERE, x.sin());
    return (tanh = HERE, y.tanh()).sum();
  };
  const T x = leaf({4});
  const int64_t before = tracing::code_line_lookups();
  const test::EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  auto generated = compile(function, {.backend = "llvm"});
  generated(x).backward();
  auto f = compile(function, {.backend = "eager"});
  f(x).backward();
  EXPECT_EQ(tracing::code_line_lookups(), before) << "a compile looks nothing up";
  EXPECT_NE(generated.report().find("sin at " + std::string(__FILE__)), std::string::npos)
      << generated.report();
  const Entry entry = f.entries().front();
  EXPECT_EQ(lines_of(entry.joint(), "aten::sin"), Lines{sin});
  EXPECT_EQ(lines_of(entry.forward(), "aten::tanh"), Lines{tanh});
  EXPECT_EQ(lines_of(entry.backward(), "aten::tanh_backward", ir::Phase::Backward), Lines{tanh});
  EXPECT_EQ(lines_of(entry.backward(), "aten::cos", ir::Phase::Backward), Lines{sin});

  const std::vector<Saved> saved = entry.saved();
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[0].line, "") << "an input comes from no line";
  EXPECT_TRUE(saved[1].line.ends_with("/" + tanh)) << saved[1].line;
  EXPECT_NE(f.explain(x).find("/" + tanh + ")"), std::string::npos) << f.explain(x);
  EXPECT_NE(ir::print(entry.forward()).find("/" + tanh + "\n"), std::string::npos);
}

TEST(SourceLinesOfACall, SplitFillsThemIn) {
  std::string exp;
  const Joint joint =
      export_joint([&](const T& x) { return (exp = HERE, x.exp()); }, std::tuple{leaf({4})});
  const Split parts = split(joint);
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_TRUE(parts.saved[0].line.ends_with("/" + exp)) << parts.saved[0].line;
}

TEST(SourceLinesOfACall, MergedNodesKeepTheFirst) {
  std::string first;
  auto f = compile([&](const T& x) {
    T y = (first = HERE, x.sin());
    return y * x.sin();
  });
  f(torch::ones({3}));
  EXPECT_EQ(lines_of(f.entries().front().forward(), "aten::sin"), Lines{first});
}

TEST(SourceLinesOfACall, AnInlinedCompiledFunctionShowsItsOwn) {
  std::string inner_line, outer_line;
  auto inner = compile([&](const T& x) { return (inner_line = HERE, x.sin()); });
  auto outer = compile([&](const T& x) { return (outer_line = HERE, inner(x).cos()); });
  outer(torch::ones({3}));
  EXPECT_EQ(lines_of(outer.entries().front().forward(), "aten::sin"), Lines{inner_line});
  EXPECT_EQ(lines_of(outer.entries().front().forward(), "aten::cos"), Lines{outer_line});
}

TEST(SourceLinesOfACall, AreTheSameForEveryFormOfCompile) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Tanh());
  std::string line;
  auto step = compile(net, [&](const T& x) { return (line = HERE, net->forward(x)); });
  step(torch::ones({2, 4}));
  EXPECT_EQ(lines_of(step.entries().front().forward(), "aten::tanh"), Lines{line});
  // No line of the user is on the way: unknown rather than a line of Tandem's or libtorch's.
  auto forward = compile(net);
  forward(torch::ones({2, 4}));
  EXPECT_EQ(lines_of(forward.entries().front().forward(), "aten::tanh"), Lines{""});
}

TEST(SourceLinesOfACall, CanBeSwitchedOff) {
  EnvironmentVariable off("TANDEM_SOURCE_LINES", "off");
  auto f = compile([](const T& x) { return x.sin(); });
  f(leaf({3}));
  EXPECT_EQ(lines_of(f.entries().front().forward(), "aten::sin"), Lines{""});
  EXPECT_NE(f.explain(leaf({3})).find("TANDEM_SOURCE_LINES=off"), std::string::npos);
  auto reads = compile([](const T& x) { return x * x.sum().item<float>(); });
  const std::string text = test::error_text<UnsupportedError>([&] { reads(torch::ones({3})); });
  EXPECT_EQ(text.find("\n  at:"), std::string::npos) << text;
}

TEST(SourceLinesOfACall, AWrongValueOfTheSwitchIsAnError) {
  EnvironmentVariable wrong("TANDEM_SOURCE_LINES", "maybe");
  EXPECT_EQ(test::error_text<UserError>([] { compile([](const T& x) { return x; }); }),
            "options: environment variable TANDEM_SOURCE_LINES cannot be read: expected on or off, "
            "got \"maybe\"\n"
            "  remedy: correct it or unset it; it beats what the program says");
}

}  // namespace
}  // namespace tandem
