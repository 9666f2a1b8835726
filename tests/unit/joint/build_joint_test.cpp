#include "joint/build_joint.h"

#include "signature/read_signature.h"
#include "support/graph_text.h"
#include "support/run_trace.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::joint {
namespace {

using T = at::Tensor;
using test::Tensors;

Joint joint_of(const Tensors& arguments, const std::function<Tensors(const Tensors&)>& fn) {
  const auto trace = test::run_trace(arguments, fn);
  return build_joint(*trace, signature::read_signature(*trace), "g");
}

T leaf(at::IntArrayRef sizes) { return torch::ones(sizes).set_requires_grad(true); }

TEST(BuildJoint, ForwardAndBackwardInOneGraph) {
  const Joint joint =
      joint_of({leaf({3}), leaf({3})}, [](const Tensors& a) { return Tensors{a[0] * a[1]}; });
  EXPECT_GRAPH_EQ(joint.graph, R"(
    graph g(%arg0: f32[3] user_input 0, %arg1: f32[3] user_input 1, %tangent0: f32[3] tangent 0) {
      %0: f32[3] = aten.mul.Tensor(%arg0, %arg1)
      backward:
      %1: f32[3] = aten.mul.Tensor(%tangent0, %arg0)
      %2: f32[3] = aten.mul.Tensor(%tangent0, %arg1)
      return %0: output 0, %2: grad 0, %1: grad 1
    })");
  EXPECT_TRUE(joint.signature.training);
}

TEST(BuildJoint, NoTangentNoBackward) {
  const Joint joint =
      joint_of({torch::ones({3})}, [](const Tensors& a) { return Tensors{a[0].exp()}; });
  EXPECT_FALSE(joint.signature.training);
  EXPECT_EQ(joint.graph.node_count(), 1u);
}

TEST(BuildJoint, AGradientThatNothingReachesIsAbsent) {
  const Joint joint =
      joint_of({leaf({3}), leaf({3})}, [](const Tensors& a) { return Tensors{a[0].exp()}; });
  ASSERT_EQ(joint.graph.outputs().size(), 3u);
  EXPECT_NE(joint.graph.outputs()[1].value, ir::kNoValue);
  EXPECT_EQ(joint.graph.outputs()[2].value, ir::kNoValue);
}

TEST(BuildJoint, WrittenInputsComeBeforeResultsAndGradients) {
  const Joint joint = joint_of({leaf({3}), torch::zeros({3})}, [](const Tensors& a) {
    T y = a[0].exp();
    a[1].add_(y.detach());
    return Tensors{y};
  });
  ASSERT_EQ(joint.graph.outputs().size(), 3u);
  EXPECT_EQ(joint.graph.outputs()[0].role, ir::Descriptor::mutated(1));
  EXPECT_EQ(joint.graph.outputs()[1].role, ir::Descriptor::output(0));
  EXPECT_EQ(joint.graph.outputs()[2].role, ir::Descriptor::grad(0));
}

// Eager raises when that backward runs; the other result can still be differentiated.
TEST(BuildJoint, ATangentWhoseBackwardRaisesIsMarked) {
  const Joint joint = joint_of({leaf({3}), torch::ones({3})}, [](const Tensors& a) {
    T y = a[0] * a[1];
    a[1].add_(1);
    return Tensors{y, a[0].exp()};
  });
  EXPECT_NE(joint.signature.tangents[0].raises.find("modified by an inplace operation"),
            std::string::npos);
  EXPECT_EQ(joint.signature.tangents[1].raises, "");
  EXPECT_NE(joint.graph.outputs().back().value, ir::kNoValue);
}

}  // namespace
}  // namespace tandem::joint
