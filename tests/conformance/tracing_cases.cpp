#include "conformance/categories.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

#include <tuple>

/// What the recording holds.
namespace tandem::conformance {
namespace {

/// The graph knows nothing of the data that it was recorded with.
void make_graph(Session& session) {
  const at::Tensor x = torch::randn({3});
  const Joint joint =
      tandem::export_joint([](const at::Tensor& a) { return a.sin(); }, std::tuple{x});
  EXPECT_EQ(op_names(joint.graph), std::vector<std::string>{"aten::sin"});
  const at::Tensor other = torch::randn({3});
  EXPECT_TRUE(at::equal(run_graph(joint.graph, {other})[0], other.sin()));
  session.judge(plain({{3}}), [](Tensors& a) -> Tensors { return {a[0].sin()}; });
}

at::Tensor gradient_of_sine(const at::Tensor& x) {
  return torch::autograd::grad({x.sin().sum()}, {x})[0];
}

/// Autograd runs inside the recording; its result is an ordinary value.
void make_graph_of_gradient(Session& session) {
  const Joint joint = tandem::export_joint(gradient_of_sine, std::tuple{leaf({3})});
  EXPECT_EQ(count_of(joint.graph, "aten::cos"), 1);
  const at::Tensor other = torch::randn({3});
  EXPECT_TRUE(at::equal(run_graph(joint.graph, {other})[0], other.cos()));
  session.judge(leaves({{3}}), [](Tensors& a) -> Tensors { return {gradient_of_sine(a[0])}; });
}

/// One entry whatever number the second tensor holds.
void scalar_tensor(Session& session) {
  session.judge(
      [] { return Inputs{{torch::randn({3}), torch::randint(1, 100, {}, torch::kLong)}}; },
      [](Tensors& a) -> Tensors { return {a[0] + a[1]}; });
}

/// Autograd's own formula is one op, and stays one.
void no_decomposition(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(count_of(entry.backward(), "aten::tanh_backward"), 1);
  };
  session.judge(leaves({{5}}), [](Tensors& a) -> Tensors { return {a[0].tanh().sum()}; }, settings);
}

void every_value_has_a_type(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    for (const ir::Graph* graph : {&entry.forward(), &entry.backward()}) {
      EXPECT_GT(graph->node_count(), 0);
      graph->for_each_node([&](const ir::Node& node) {
        for (const ir::ValueId result : node.results()) {
          if (result == ir::kNoValue) continue;
          EXPECT_NE(graph->value(result).tensor_type(), nullptr) << ir::print(*graph);
        }
      });
    }
  };
  session.judge(
      [] {
        torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::GELU());
        return Program{[=] {
                         Inputs inputs{{leaf({2, 4})}};
                         inputs.leaves = net->parameters();
                         inputs.leaves.push_back(inputs.arguments[0]);
                         return inputs;
                       },
                       [net](Tensors& a) mutable -> Tensors { return {net->forward(a[0])}; }};
      },
      settings);
}

}  // namespace

Category tracing_front_end() {
  return {"Tracing front end",
          {
              {"test_make_fx", make_graph},
              {"test_make_fx_grad", make_graph_of_gradient},
              {"test_scalar_device", scalar_tensor},
              {"test_make_fx_no_decompose", no_decomposition},
              judged("test_inner_grad", leaves({{3}}),
                     [](Tensors& a) -> Tensors {
                       const at::Tensor y = a[0].exp();
                       return {torch::autograd::grad({y}, {a[0]}, {torch::ones_like(y)})[0]};
                     }),
              {"test_meta_tensor_inplace_op", every_value_has_a_type},
          }};
}

}  // namespace tandem::conformance
