/// Nodes of the backward show the line of the forward that they belong to.
#include "joint/build_joint.h"
#include "signature/read_signature.h"
#include "support/node_line.h"
#include "support/run_trace.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

namespace tandem::joint {
namespace {

using ir::Phase;
using T = at::Tensor;
using test::lines_of;
using test::Tensors;
using Lines = std::vector<std::string>;

// g++ gives what stands in the braces of a `return T{...}` the line of the closing brace of the
// function, so ops that are looked at stand in statements of their own.
#define HERE test::line_of(__FILE__, __LINE__)

Joint joint_of(const Tensors& arguments, const std::function<Tensors(const Tensors&)>& fn) {
  const auto trace = test::run_trace(arguments, fn);
  return build_joint(*trace, signature::read_signature(*trace), "g");
}

T leaf(at::IntArrayRef sizes) { return torch::ones(sizes).set_requires_grad(true); }

TEST(BackwardLines, AreThoseOfTheForward) {
  std::string sin, exp, mul;
  const Joint joint = joint_of({leaf({3})}, [&](const Tensors& a) {
    T y = (sin = HERE, a[0].sin());
    T z = (exp = HERE, y.tanh());
    const T result = (mul = HERE, z * z);
    return Tensors{result};
  });
  EXPECT_EQ(lines_of(joint.graph, "aten::cos", Phase::Backward), Lines{sin});
  EXPECT_EQ(lines_of(joint.graph, "aten::tanh_backward", Phase::Backward), Lines{exp});
  // Two products by z, and the product with the cosine. The sum of the two counts as made by the
  // last of them.
  Lines products = lines_of(joint.graph, "aten::mul", Phase::Backward);
  EXPECT_EQ(std::ranges::count(products, mul), 2) << ir::print(joint.graph);
  EXPECT_EQ(std::ranges::count(products, sin), 1);
  EXPECT_EQ(lines_of(joint.graph, "aten::add", Phase::Backward), Lines{mul});
}

TEST(BackwardLines, OfModulesAndLosses) {
  torch::nn::Linear fc(4, 3);
  std::string linear, loss;
  const Joint joint =
      joint_of({torch::ones({2, 4}), torch::zeros({2}, torch::kLong)}, [&](const Tensors& a) {
        T y = (linear = HERE, fc->forward(a[0]));
        namespace F = torch::nn::functional;
        const T result = (loss = HERE, F::cross_entropy(y, a[1]));
        return Tensors{result};
      });
  EXPECT_EQ(lines_of(joint.graph, "aten::mm", Phase::Backward), Lines{linear});
  EXPECT_EQ(lines_of(joint.graph, "aten::nll_loss_backward", Phase::Backward), Lines{loss});
}

TEST(BackwardLines, EveryNodeHasOne) {
  torch::nn::Sequential net(torch::nn::Linear(4, 8),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                            torch::nn::GELU(), torch::nn::Linear(8, 2));
  const Joint joint = joint_of({leaf({2, 4})}, [&](const Tensors& a) {
    T y = a[0] + a[0].select(0, 1);
    return Tensors{net->forward(y).pow(2).mean(), y.std()};
  });
  joint.graph.for_each_node([&](const ir::Node& node) {
    EXPECT_GT(node.location().line(), 0) << ir::print(joint.graph, node);
  });
}

struct Cube : torch::autograd::Function<Cube> {
  static inline std::string backward_line;
  static T forward(torch::autograd::AutogradContext* context, const T& x) {
    context->save_for_backward({x});
    return x.pow(3);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors grads) {
    const T x = context->get_saved_variables()[0];
    const T result = (backward_line = HERE, grads[0] * x.square() * 3);
    return {result};
  }
};

// The user wrote that code, so it is what the user wants to see.
TEST(BackwardLines, OfACustomFunctionAreThoseOfItsBackward) {
  const Joint joint = joint_of(
      {leaf({3})}, [](const Tensors& a) { return Tensors{Cube::apply(a[0].sin()).cos()}; });
  EXPECT_EQ(lines_of(joint.graph, "aten::pow", Phase::Backward), Lines{Cube::backward_line});
}

TEST(BackwardLines, OfAHookAreTheHooks) {
  std::string hook, sin;
  const Joint joint = joint_of({leaf({3})}, [&](const Tensors& a) {
    T y = (sin = HERE, a[0].sin());
    y.register_hook([&](T grad) { return (hook = HERE, grad.abs()); });
    return Tensors{y.exp()};
  });
  EXPECT_EQ(lines_of(joint.graph, "aten::abs", Phase::Backward), Lines{hook});
  EXPECT_EQ(lines_of(joint.graph, "aten::cos", Phase::Backward), Lines{sin});
}

TEST(BackwardLines, OfAGradientInsideTheFunctionAreThoseOfTheCall) {
  std::string grad;
  const Joint joint = joint_of({leaf({3})}, [&](const Tensors& a) {
    T y = a[0].sin().sum();
    return torch::autograd::grad({y}, {a[0]}, {}, true, (grad = HERE, true));
  });
  EXPECT_EQ(lines_of(joint.graph, "aten::cos"), Lines{grad});
}

}  // namespace
}  // namespace tandem::joint
