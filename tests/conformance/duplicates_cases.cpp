#include "conformance/categories.h"
#include "conformance/variants.h"
#include "passes/registry.h"
#include "pipeline/pipeline.h"
#include "support/same_bits.h"

#include <gtest/gtest.h>

/// Equal computations are done once. The peer's preset that computes again what is cheap is judged
/// on the CPU, with the partition that we have.
namespace tandem::conformance {
namespace {

/// The recording as it is, before any clean-up.
ir::Graph recorded(const Function& function, const Tensors& arguments) {
  const detail::FlatFunction flat = detail::Typed<Tensors(Tensors)>::flat_function(
      [function](Tensors list) { return function(list); });
  pipeline::StageLog log("conformance", {});
  return pipeline::capture(flat, detail::flatten(arguments), {}, log).joint.graph;
}

/// Merging erases exactly this many nodes, the result stays, and a second run changes nothing.
Case merges(std::string name, std::vector<int64_t> sizes, int64_t erased, Function program) {
  return {std::move(name), [=](Session& session) {
            const Tensors arguments = {torch::randn(sizes)};
            ir::Graph graph = recorded(program, arguments);
            const size_t before = graph.node_count();
            const PassInfo& pass = passes::find_pass("merge-duplicates");
            EXPECT_EQ(passes::run_pass(pass, graph, {}).changes, erased) << ir::print(graph);
            EXPECT_EQ(before - graph.node_count(), erased) << ir::print(graph);
            torch::manual_seed(2);
            Tensors list = arguments;
            const Tensors expected = program(list);
            torch::manual_seed(2);
            const Tensors found = run_graph(graph, arguments);
            ASSERT_EQ(found.size(), expected.size());
            for (size_t i = 0; i < found.size(); ++i)
              EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
            EXPECT_EQ(passes::run_pass(pass, graph, {}).changes, 0) << ir::print(graph);
            session.judge(plain({sizes}), program);
          }};
}

/// Five training steps of one entry, each against eager.
Case trained(std::string name, Sizes sizes, Function program) {
  return {std::move(name), [=](Session& session) {
            session.judge(leaves(sizes), program);
            const auto compiled =
                tandem::compile_boxed([=](Tensors list) { return program(list); });
            for (uint64_t step = 0; step < 5; ++step) {
              const auto run = [&](const Function& call) {
                torch::manual_seed(step);
                const Inputs inputs = leaves(sizes)();
                Tensors list = inputs.arguments;
                const at::Tensor out = call(list)[0];
                out.sum().backward();
                Tensors seen = {out.detach()};
                for (const at::Tensor& item : inputs.leaves) seen.push_back(item.grad());
                return seen;
              };
              const Tensors expected = run(program);
              const Tensors found = run([&](Tensors& a) { return compiled(a); });
              for (size_t i = 0; i < expected.size(); ++i)
                EXPECT_TRUE(test::same_bits(expected[i], found[i])) << "step " << step << ", " << i;
            }
            EXPECT_EQ(compiled.stats().traces, 1);
          }};
}

at::Tensor hard_sigmoid(const at::Tensor& x) { return (x + 3).clamp(0, 6) / 6; }

}  // namespace

Category common_subexpressions() {
  return {"Common-subexpression removal and rematerialising preset",
          {
              trained("test_gelu_bias", {{8, 16}, {16}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor x = a[0] + a[1];
                        return {x * 0.5 * (1 + (0.79788456 * x * (1 + 0.044715 * x * x)).tanh())};
                      }),
              trained("test_mish", {{8, 16}},
                      [](Tensors& a) -> Tensors { return {a[0] * torch::softplus(a[0]).tanh()}; }),
              trained("test_swish", {{8, 16}},
                      [](Tensors& a) -> Tensors { return {a[0] * a[0].sigmoid()}; }),
              trained("test_hard_sigmoid", {{8, 16}},
                      [](Tensors& a) -> Tensors { return {hard_sigmoid(a[0])}; }),
              trained("test_hard_swish", {{8, 16}},
                      [](Tensors& a) -> Tensors { return {a[0] * hard_sigmoid(a[0])}; }),
              trained("test_layer_norm", {{8, 16}, {16}, {16}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor mean = a[0].mean(1, true);
                        const at::Tensor centred = a[0] - mean;
                        const at::Tensor variance = (centred * centred).mean(1, true);
                        return {centred * (variance + 1e-5).rsqrt() * a[1] + a[2]};
                      }),
              trained("test_rmsnorm", {{8, 16}, {16}},
                      [](Tensors& a) -> Tensors {
                        return {a[0] * (a[0].pow(2).mean(1, true) + 1e-6).rsqrt() * a[1]};
                      }),
              merges("test_nochange", {2, 2}, 0,
                     [](Tensors& a) -> Tensors {
                       const at::Tensor b = a[0] + (a[0] + 1);
                       return {b + (a[0] + a[0])};
                     }),
              merges("test_empty", {2, 2}, 0, [](Tensors&) -> Tensors { return {}; }),
              merges("test_rand_like", {2, 2}, 0,
                     [](Tensors& a) -> Tensors {
                       return {torch::rand_like(a[0]) + torch::rand_like(a[0])};
                     }),
              merges("test_rand_n", {2, 2}, 0,
                     [](Tensors&) -> Tensors { return {torch::randn({4}) + torch::randn({4})}; }),
              merges("test_immutable_list_type", {2, 2}, 2,
                     [](Tensors& a) -> Tensors {
                       return {a[0].sum(1) + a[0].sum(1) + a[0].sum() + a[0].sum()};
                     }),
              merges("test_immutable_list_multiple_entries", {2, 2}, 2,
                     [](Tensors& a) -> Tensors {
                       return {a[0].sum(at::IntArrayRef{0, 1}) + a[0].sum(at::IntArrayRef{0, 1}) +
                               a[0].sum(1) + a[0].sum(1)};
                     }),
              merges("test_simple", {2, 2}, 2,
                     [](Tensors& a) -> Tensors {
                       const at::Tensor b = a[0].cos(), c = a[0].cos();
                       return {(b + b) + (c + c)};
                     }),
              merges("test_simple_2", {2, 2}, 3,
                     [](Tensors& a) -> Tensors {
                       const at::Tensor b = a[0].cos().sin(), c = a[0].cos().sin();
                       return {(b + b) + (c + c)};
                     }),
              merges("test_two_args_default", {2, 2}, 3,
                     [](Tensors& a) -> Tensors {
                       return {a[0].sum(1) + a[0].sum(1, false) + a[0].sum(1, false) + a[0].sum(1)};
                     }),
              merges("test_two_args", {2, 2}, 2,
                     [](Tensors& a) -> Tensors {
                       return {a[0].sum(1) + a[0].sum(1, true) + a[0].sum(1, true) + a[0].sum(1)};
                     }),
              merges("test_simple_multiple_same_ops", {2, 2}, 3,
                     [](Tensors& a) -> Tensors {
                       return {a[0].sum() + a[0].sum() + a[0].sum() + a[0].sum()};
                     }),
              merges("test_nested_immutable_list_type", {2, 2}, 1,
                     [](Tensors& a) -> Tensors {
                       return {torch::cat({a[0], a[0]}) + torch::cat({a[0], a[0]})};
                     }),
              merges("test_kwarg", {2, 2}, 1,
                     [](Tensors& a) -> Tensors {
                       return {torch::ones_like(a[0]) + torch::ones_like(a[0])};
                     }),
          }};
}

}  // namespace tandem::conformance
