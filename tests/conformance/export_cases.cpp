#include "conformance/categories.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

#include <tuple>

/// Graphs that stand by themselves.
namespace tandem::conformance {
namespace {

/// A buffer of 3 and a forward that the case writes.
struct Net : torch::nn::Module {
  using Body = std::function<Tensors(Net&, const at::Tensor&)>;
  explicit Net(Body body) : body(std::move(body)) {
    weight = register_parameter("weight", torch::full({3}, 2.0));
    seen = register_buffer("seen", torch::zeros({3}));
  }
  Tensors forward(const at::Tensor& x) { return body(*this, x); }
  Body body;
  at::Tensor weight, seen;
};

/// Exports, then runs the graph on the state of the module and on other numbers than it was
/// exported with.
struct Run {
  Exported exported;
  Tensors results;
  at::Tensor at(int64_t place) const { return results.at(static_cast<size_t>(place)); }
};
Run export_and_run(const std::shared_ptr<Net>& net, const at::Tensor& example, const at::Tensor& x,
                   const ExportOptions& options = {}) {
  Run run;
  run.exported = tandem::export_module(net, std::tuple{example}, options);
  const ModuleSignature& signature = run.exported.signature;
  Tensors inputs(run.exported.graph.inputs().size());
  inputs.at(signature.parameters.at("weight")) = net->weight.detach().clone();
  inputs.at(signature.buffers.at("seen")) = net->seen.clone();
  inputs.at(signature.user_inputs.at(0)) = x.detach().clone();
  run.results = run_graph(run.exported.graph, inputs);
  return run;
}

void dropout_then_written(Session& session) {
  // Without training it is its own argument, so the write is a write to the argument.
  const auto body = [](Net&, const at::Tensor& x) -> Tensors {
    at::Tensor y = torch::dropout(x, 0.1, false);
    y.add_(1);
    return {y * 2};
  };
  const at::Tensor x = torch::randn({3});
  const Run run = export_and_run(std::make_shared<Net>(body), torch::ones({3}), x);
  ASSERT_EQ(run.exported.signature.mutated_user_inputs.count(0), 1);
  EXPECT_TRUE(at::equal(run.at(run.exported.signature.mutated_user_inputs.at(0)), x + 1));
  EXPECT_TRUE(at::equal(run.at(run.exported.signature.user_outputs.at(0)), (x + 1) * 2));
  EXPECT_EQ(run.exported.graph.outputs().size(), 2);
  session.judge(plain({{3}}), [](Tensors& a) -> Tensors {
    at::Tensor y = torch::dropout(a[0], 0.1, false);
    y.add_(1);
    return {y * 2};
  });
}

void simplified_basic(Session&) {
  const auto function = [](const at::Tensor& x, const at::Tensor& y) {
    return Tensors{x * y, y * y.detach()};
  };
  {
    const torch::NoGradGuard no_grad;
    const at::Tensor x = torch::randn({3}), y = torch::randn({3});
    const Joint joint = tandem::export_joint(function, std::tuple{torch::ones({3}), y});
    const Tensors found = run_graph(joint.graph, {x, y});
    EXPECT_TRUE(at::equal(found[0], x * y));
    EXPECT_TRUE(at::equal(found[1], y * y));
  }
  const at::Tensor x = leaf({3}), y = leaf({3});
  const Split parts = tandem::split(tandem::export_joint(function, std::tuple{x, y}),
                                    {.partitioner = default_partition});
  Tensors forward = run_graph(parts.forward, {x.detach(), y.detach()});
  const Tensors expected = function(x, y);
  EXPECT_TRUE(at::equal(forward[0], expected[0]));
  EXPECT_TRUE(at::equal(forward[1], expected[1]));
  const Tensors tangents = {torch::randn({3}), torch::randn({3})};
  Tensors inputs(forward.begin() + 2, forward.end());
  inputs.insert(inputs.end(), tangents.begin(), tangents.end());
  const Tensors gradients = run_graph(parts.backward, inputs);
  const Tensors wanted = torch::autograd::grad(expected, {x, y}, tangents);
  ASSERT_EQ(gradients.size(), 2);
  EXPECT_TRUE(at::equal(gradients[0], wanted[0]));
  EXPECT_TRUE(at::equal(gradients[1], wanted[1]));
}

void forward_mutation(Session&, bool buffer_too) {
  const auto body = [=](Net& net, const at::Tensor& x) -> Tensors {
    x.add_(4);
    if (buffer_too) net.seen.add_(5);
    return {x.cos().sum() + net.seen.sum()};
  };
  const auto net = std::make_shared<Net>(body);
  const at::Tensor x = torch::randn({3});
  const Run run = export_and_run(net, torch::ones({3}), x);
  const ModuleSignature& signature = run.exported.signature;
  EXPECT_TRUE(at::equal(net->seen, torch::zeros({3}))) << "exporting has run the forward";
  ASSERT_EQ(signature.mutated_user_inputs.count(0), 1);
  EXPECT_EQ(signature.mutated_buffers.count("seen"), buffer_too);
  EXPECT_TRUE(signature.mutated_parameters.empty());
  EXPECT_EQ(run.exported.graph.outputs().size(), buffer_too ? 3 : 2);
  const at::Tensor written = x.clone();
  const Tensors expected = net->forward(written);
  EXPECT_TRUE(at::equal(run.at(signature.mutated_user_inputs.at(0)), written));
  EXPECT_TRUE(at::equal(run.at(signature.user_outputs.at(0)), expected[0]));
  if (buffer_too) {
    EXPECT_TRUE(at::equal(run.at(signature.mutated_buffers.at("seen")), net->seen));
    EXPECT_LT(signature.mutated_buffers.at("seen"), signature.mutated_user_inputs.at(0));
  }
}

/// Without the joint graph a write to what requires grad is a write like any other.
void written_input_that_requires_grad(Session&) {
  const auto body = [](Net&, const at::Tensor& x) -> Tensors {
    x.add_(4);
    return {x};
  };
  const at::Tensor x = torch::randn({3});
  const Run run = export_and_run(std::make_shared<Net>(body), leaf({3}) * 1, x);
  const ModuleSignature& signature = run.exported.signature;
  ASSERT_EQ(signature.mutated_user_inputs.count(0), 1);
  EXPECT_TRUE(at::equal(run.at(signature.mutated_user_inputs.at(0)), x + 4));
  EXPECT_TRUE(at::equal(run.at(signature.user_outputs.at(0)), x + 4));
}

/// A number that is read while the function runs makes a size.
void size_from_data(Session& session) {
  session.judge([] { return Inputs{}; },
                [](Tensors&) -> Tensors {
                  const int64_t n = torch::tensor({8}, torch::kLong).sum().item<int64_t>();
                  return {torch::randn({n})};
                });
}

void joint_with_written_buffer(Session&) {
  const auto body = [](Net& net, const at::Tensor& x) -> Tensors {
    net.seen.add_(1);
    return {(net.weight * net.seen * x).sum()};
  };
  const auto net = std::make_shared<Net>(body);
  const at::Tensor x = torch::randn({3});
  const Run run = export_and_run(net, torch::ones({3}), x, {.joint = true});
  const ModuleSignature& signature = run.exported.signature;
  const Tensors expected = net->forward(x);
  expected[0].backward();
  EXPECT_TRUE(at::equal(run.at(signature.user_outputs.at(0)), expected[0].detach()));
  EXPECT_TRUE(at::equal(run.at(signature.gradients.at("weight")), net->weight.grad()));
  EXPECT_TRUE(at::equal(run.at(signature.mutated_buffers.at("seen")), net->seen));
  EXPECT_EQ(signature.gradients.count("seen"), 0);
  EXPECT_TRUE(signature.user_input_gradients.empty());
}

}  // namespace

Category exported() {
  return {"Export",
          {
              {"test_aot_export_ban_dropout_mut_pre_dispatch", dropout_then_written},
              {"test_aot_export_simplified_basic", simplified_basic},
              {"test_aot_export_forward_mutation_no_buffer_mut",
               [](Session& session) { forward_mutation(session, false); }},
              {"test_aot_export_forward_mutation_multiple_mut",
               [](Session& session) { forward_mutation(session, true); }},
              {"test_aot_export_input_mutation_on_input_requiring_grad_banned",
               written_input_that_requires_grad},
              {"test_aot_export_unbacked_arg", size_from_data,
               later(Feature::SymbolicShapes, "reads a size that depends on data as a number")},
              {"test_aot_export_input_mutation", joint_with_written_buffer},
          }};
}

}  // namespace tandem::conformance
