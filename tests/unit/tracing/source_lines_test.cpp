#include "tracing/lines/source_lines.h"

#include "no_lines.h"
#include "support/node_line.h"
#include "support/run_trace.h"
#include "tandem/ir/text.h"
#include "tandem/log.h"
#include "tracing/lines/debug_info.h"
#include "tracing/recording/traced_tensor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace tandem::tracing {
namespace {

namespace F = torch::nn::functional;
using T = at::Tensor;
using test::lines_of;
using test::Tensors;
using Lines = std::vector<std::string>;

// The line on which it stands.
// g++ gives what stands in the braces of a `return T{...}` the line of the closing brace of the
// function, so ops that are looked at stand in statements of their own.
#define HERE test::line_of(__FILE__, __LINE__)

T x4() { return torch::ones({4, 4}); }

const ir::Graph& graph_of(const std::unique_ptr<Trace>& trace) {
  return std::as_const(*trace).recording().graph();
}

std::string line_in_function;
[[gnu::noinline]] T users_function(const T& x) {
  T y = (line_in_function = HERE, x.exp());
  return y;
}

TEST(SourceLines, OfOpsInTheFunctionItself) {
  std::string first, second;
  const auto trace = test::run_trace({x4()}, [&](const Tensors& a) {
    T y = (first = HERE, a[0].sin());
    const T result = (second = HERE, y * y);
    return Tensors{result};
  });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::sin"), Lines{first});
  EXPECT_EQ(lines_of(graph_of(trace), "aten::mul"), Lines{second});
}

TEST(SourceLines, OfTheFunctionThatCallsTheOpNotOfItsCaller) {
  const auto trace =
      test::run_trace({x4()}, [&](const Tensors& a) { return Tensors{users_function(a[0])}; });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::exp"), Lines{line_in_function});
}

TEST(SourceLines, LookThroughHeadersOfLibtorch) {
  std::string line;
  const auto trace =
      test::run_trace({x4(), torch::zeros({4}, torch::kLong)}, [&](const Tensors& a) {
        const T result = (line = HERE, F::cross_entropy(F::gelu(a[0]), a[1]));
        return Tensors{result};
      });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::gelu"), Lines{line});
  EXPECT_EQ(lines_of(graph_of(trace), "aten::nll_loss_forward"), Lines{line});
}

TEST(SourceLines, LookThroughModulesOfLibtorch) {
  torch::nn::Linear fc(4, 4);
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Tanh(), torch::nn::ReLU());
  std::string linear, sequential;
  const auto trace = test::run_trace({x4()}, [&](const Tensors& a) {
    T y = (linear = HERE, fc->forward(a[0]));
    const T result = (sequential = HERE, net->forward(y));
    return Tensors{result};
  });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::addmm"), (Lines{linear, sequential}));
  EXPECT_EQ(lines_of(graph_of(trace), "aten::tanh"), Lines{sequential});
  EXPECT_EQ(lines_of(graph_of(trace), "aten::relu"), Lines{sequential});
}

struct BlockImpl : torch::nn::Module {
  BlockImpl() : fc(register_module("fc", torch::nn::Linear(4, 4))) {}
  T forward(const T& x) { return (line = HERE, fc->forward(x)); }
  torch::nn::Linear fc;
  std::string line;
};
TORCH_MODULE(Block);

TEST(SourceLines, OfTheUsersModuleInsideASequential) {
  Block block;
  torch::nn::Sequential net(block, torch::nn::Tanh());
  std::string call;
  const auto trace = test::run_trace(
      {x4()}, [&](const Tensors& a) { return Tensors{(call = HERE, net->forward(a[0]))}; });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::addmm"), Lines{block->line});
  EXPECT_EQ(lines_of(graph_of(trace), "aten::tanh"), Lines{call});
}

struct Cube : torch::autograd::Function<Cube> {
  static inline std::string forward_line;
  static T forward(torch::autograd::AutogradContext* context, const T& x) {
    context->save_for_backward({x});
    return (forward_line = HERE, x.pow(3));
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors grads) { return grads; }
};

TEST(SourceLines, OfTheForwardOfACustomFunction) {
  const auto trace = test::run_trace({x4().set_requires_grad(true)},
                                     [&](const Tensors& a) { return Tensors{Cube::apply(a[0])}; });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::pow"), Lines{Cube::forward_line});
}

TEST(SourceLines, OfFactoriesAndConstants) {
  std::string ones, constant;
  const auto trace = test::run_trace({x4()}, [&](const Tensors& a) {
    T y = (ones = HERE, torch::ones({4, 4}));
    T c = torch::tensor({1.0f, 2.0f, 3.0f, 4.0f});
    const T result = (constant = HERE, a[0] + y + c);
    return Tensors{result};
  });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::ones"), Lines{ones});
  graph_of(trace).for_each_node([&](const ir::Node& node) {
    if (node.kind() == ir::NodeKind::Constant) {
      EXPECT_TRUE(node.location().known());
    }
  });
}

// What a view's write means for its base is recorded late, when somebody reads the base.
TEST(SourceLines, OfAWriteThroughAViewThatNobodyReadsAfterwards) {
  std::string line;
  const auto trace = test::run_trace({x4()}, [&](const Tensors& a) {
    line = HERE, a[0].select(0, 1).add_(1);
    return Tensors{};
  });
  current_value(trace->stand_ins()[0].tensor);
  EXPECT_EQ(lines_of(graph_of(trace), "aten::select_scatter"), Lines{line});
}

TEST(SourceLines, WithoutDebugInformationTheNearestSymbol) {
  // Straight to the library, so that no function of this file stands in between.
  detail::Flat arguments;
  arguments.tensors = {x4()};
  Trace trace(arguments, {.names = {"argument"}});
  trace.run(sines_without_lines);
  const ir::Graph& graph = std::as_const(trace).recording().graph();
  const ir::Location& location = graph.node(graph.first_node()).location();
  std::vector<std::string> warnings;  // of this process: one, when a line is first missed
  const WarningSink before =
      set_warning_sink([&](const std::string& line) { warnings.push_back(line); });
  EXPECT_EQ(location.line(), 0);
  const std::string text = ir::to_string(location);
  EXPECT_EQ(text.substr(0, text.rfind("+0x")),
            "libtandem_test_no_lines.so(sine_without_lines(at::Tensor const&)");
  graph.for_each_node([](const ir::Node& node) { node.location().line(); });
  set_warning_sink(before);
  EXPECT_EQ(warnings,
            std::vector<std::string>{
                "tandem: warning: lines of the program are not known: it has no debug information. "
                "Build it with -g1 and install libdw1; TANDEM_SOURCE_LINES=off goes without"});
  EXPECT_EQ(ir::print(ir::parse(ir::print(graph))), ir::print(graph));
  EXPECT_NE(ir::print(graph).find("# " + text), std::string::npos);
}

TEST(SourceLines, AUsersLineWinsOverASymbolFurtherIn) {
  std::string line;
  const auto trace = test::run_trace(
      {x4()}, [&](const Tensors& a) { return Tensors{(line = HERE, sine_without_lines(a[0]))}; });
  EXPECT_EQ(lines_of(graph_of(trace), "aten::sin"), Lines{line});
}

TEST(SourceLines, NothingIsLookedUpUnlessSomebodyAsks) {
  const int64_t before = code_line_lookups();
  const auto trace =
      test::run_trace({x4()}, [&](const Tensors& a) { return Tensors{a[0].cosh().sinh()}; });
  ir::Graph copy = graph_of(trace);
  EXPECT_EQ(ir::structural_hash(copy), ir::structural_hash(graph_of(trace)));
  EXPECT_EQ(code_line_lookups(), before);
  const ir::Location& location = copy.node(copy.first_node()).location();
  EXPECT_TRUE(location.noted());
  EXPECT_FALSE(location.found());
  EXPECT_TRUE(location.known());
  EXPECT_TRUE(location.found());
  const int64_t after = code_line_lookups();
  EXPECT_GT(after, before);
  // The original shares what its copy found.
  EXPECT_TRUE(graph_of(trace).node(copy.first_node()).location().found());
  location.known();
  EXPECT_EQ(code_line_lookups(), after);
}

TEST(SourceLines, CanBeAskedFromSeveralThreads) {
  const auto trace = test::run_trace(
      {x4()}, [&](const Tensors& a) { return Tensors{a[0].cos().tan().erf().abs()}; });
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) threads.emplace_back([&] { text = ir::print(graph_of(trace)); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_NE(texts[0].find("# "), std::string::npos);
}

TEST(SourceLines, SurvivePrintAndParse) {
  const auto trace = test::run_trace({x4()}, [&](const Tensors& a) {
    T y = a[0].sin();
    return Tensors{y.cos()};
  });
  const std::string text = ir::print(graph_of(trace));
  const ir::Graph parsed = ir::parse(text);
  EXPECT_EQ(ir::print(parsed), text);
  EXPECT_EQ(lines_of(parsed, "aten::cos"), lines_of(graph_of(trace), "aten::cos"));
  EXPECT_NE(lines_of(parsed, "aten::cos"), Lines{""});
}

TEST(SourceLines, CanBeSwitchedOff) {
  set_source_lines(false);
  const auto trace = test::run_trace({x4()}, [&](const Tensors& a) { return Tensors{a[0].sin()}; });
  set_source_lines(true);
  EXPECT_FALSE(graph_of(trace).node(graph_of(trace).first_node()).location().noted());
}

}  // namespace
}  // namespace tandem::tracing
