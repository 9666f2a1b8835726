/// What the backend does where it makes no kernels: on other devices, and on processors that it
/// does not know. Then libtorch computes each node, as on the backend eager.
#include "passes/decompose.h"
#include "support/environment.h"
#include "support/error_text.h"
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using at::Tensor;
using test::EnvironmentVariable;

/// `device` before the type of each tensor: `meta ` or nothing.
ir::Graph layer(const std::string& device) {
  std::string text = R"(
    graph g(%x: @f32[4, 8] user_input 0, %w: @f32[8] user_input 1) {
      %g: @f32[4, 8] = aten.gelu(%x, approximate="none")
      %m: @f32[4, 8] = aten.mul.Tensor(%g, %w)
      %s: @f32[4, 8] = aten._log_softmax(%m, 1, false)
      return %s: output 0
    })";
  for (size_t at = 0; (at = text.find('@')) != std::string::npos;) text.replace(at, 1, device);
  return ir::parse(text);
}

int64_t decomposed(ir::Graph graph) {
  return passes::decompose(graph, backend("llvm")->decompositions(Rounding::eager, Random::eager))
      .changes;
}

int64_t fused(const ir::Graph& graph) {
  int64_t count = 0;
  graph.for_each_node(
      [&](const ir::Node& node) { count += backend("llvm")->can_fuse(graph, node); });
  return count;
}

TEST(Elsewhere, TensorsOfOtherDevicesAreNeitherDecomposedNorFused) {
  EXPECT_EQ(decomposed(layer("")), 1);  // the softmax
  EXPECT_GT(fused(layer("")), 0);
  for (const char* device : {"cuda:0 ", "meta "}) {
    EXPECT_EQ(decomposed(layer(device)), 0) << device;
    EXPECT_EQ(fused(layer(device)), 0) << device;
  }
}

TEST(Elsewhere, AGraphOnAnotherDeviceRunsAsOnEager) {
  const auto compiled = backend("llvm")->compile(layer("meta "), {});
  std::vector<Tensor> inputs = {torch::empty({4, 8}, at::kMeta), torch::empty({8}, at::kMeta)};
  const Tensor result = compiled->run(inputs).at(0);
  EXPECT_TRUE(result.is_meta());
  EXPECT_EQ(result.sizes(), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(compiled->report(), backend("eager")->compile(layer("meta "), {})->report());
  EXPECT_NE(backend("llvm")->compile(layer(""), {})->report(), compiled->report());
}

// A number of the CPU that goes into a computation elsewhere, and kernels beside it.
TEST(Elsewhere, AGraphOnTwoDevicesHasKernelsForTheOneThatItKnows) {
  const auto compiled = backend("llvm")->compile(ir::parse(R"(
    graph g(%x: meta f32[4, 8] user_input 0, %w: f32[8] user_input 1, %s: f32[] user_input 2) {
      %n: meta f32[4, 8] = aten.mul.Tensor(%x, %s)
      %v: meta f32[8, 4] = aten.t(%n)
      %z: meta f32[8, 4] = aten.neg(%v)
      %e: f32[8] = aten.exp(%w)
      %f: f32[8] = aten.add.Tensor(%e, %s, alpha=1)
      return %z: output 0, %f: output 1
    })"),
                                                 {});
  EXPECT_NE(compiled->report().find("exp, add"), std::string::npos) << compiled->report();
  const Tensor w = torch::randn({8}), s = torch::tensor(2.0);
  std::vector<Tensor> inputs = {torch::empty({4, 8}, at::kMeta), w, s};
  const std::vector<Tensor> results = compiled->run(inputs);
  EXPECT_TRUE(results.at(0).is_meta());
  EXPECT_EQ(results.at(0).sizes(), (std::vector<int64_t>{8, 4}));
  EXPECT_TRUE(at::allclose(results.at(1), w.exp() + 2));
}

// Through the whole of compile(): forward, backward, and a kernel of libtorch that has no gradient.
TEST(Elsewhere, ATrainingStepOnAnotherDevice) {
  const EnvironmentVariable nobody("TANDEM_BACKEND", nullptr);
  for (const char* name : {"eager", "llvm"}) {
    SCOPED_TRACE(name);
    const auto step = compile(
        [](const Tensor& x, const Tensor& w) { return at::gelu(x.matmul(w)).pow(2).mean(); },
        {.backend = name});
    const auto on_meta = at::TensorOptions(at::kMeta);
    const Tensor x = torch::empty({4, 8}, on_meta);
    const Tensor w = torch::empty({8, 3}, on_meta).requires_grad_();
    for (int i = 0; i < 2; ++i) step(x, w).backward();
    EXPECT_TRUE(w.grad().is_meta());
    EXPECT_EQ(w.grad().sizes(), w.sizes());
    EXPECT_EQ(step.stats().compiles, 1);
    EXPECT_EQ(step.stats().backend_fallbacks, 0);
    EXPECT_EQ(step.report().find("k0:"), std::string::npos) << step.report();
  }
}

/// The nodes of a compiled training step, and that its results and gradients have eager's bits.
std::pair<int64_t, std::string> step_like_eager() {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(8, 16),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})),
                            torch::nn::GELU());
  const auto loss = [&](const Tensor& x) { return net->forward(x).exp().mean(); };
  const auto step = compile(net, loss);
  const Tensor x = torch::randn({4, 8});
  const Tensor expected = loss(x);
  expected.backward();
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad().clone());
  net->zero_grad();
  const Tensor found = step(x);
  found.backward();
  EXPECT_TRUE(test::same_bits(expected, found));
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(test::same_bits(gradients[i], net->parameters()[i].grad()));
  return {static_cast<int64_t>(step.entries().at(0).joint().node_count()), step.report()};
}

TEST(Elsewhere, OnAnUnknownProcessorLibtorchComputesEachNode) {
  std::pair<int64_t, std::string> unknown;
  {
    const EnvironmentVariable cpu("TANDEM_CPU", "none");
    unknown = step_like_eager();
  }
  EXPECT_NE(unknown.second.find("backend llvm"), std::string::npos) << unknown.second;
  EXPECT_EQ(unknown.second.find("copy bandwidth"), std::string::npos) << unknown.second;
  const EnvironmentVariable other("TANDEM_BACKEND", "eager");
  EXPECT_EQ(unknown.first, step_like_eager().first);
}

}  // namespace
}  // namespace tandem
