// What the partition makes, run: forward and backward together give autograd's results.

#include "partition/tangents/drop_tangents.h"
#include "tandem/backend.h"
#include "tandem/ir/text.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem {
namespace {

using at::Tensor;

// y = sin(x w^T), z = cat(relu(y), -x): two results, `y` and `x` used twice.
constexpr char kJoint[] = R"(
  graph net.joint(%w: f32[3, 2] lifted 0, %x: f32[4, 2] user_input 0, %dy: f32[4, 3] tangent 0, %dz: f32[4, 5] tangent 1) {
    %wt: f32[2, 3] (1, 2) = aten.t(%w)
    %h: f32[4, 3] = aten.mm(%x, %wt)
    %y: f32[4, 3] = aten.sin(%h)
    %r: f32[4, 3] = aten.relu(%y)
    %n: f32[4, 2] = aten.neg(%x)
    %z: f32[4, 5] = aten.cat([%r, %n], 1)
    backward:
    %dr: f32[4, 3] (5, 1) = aten.slice.Tensor(%dz, 1, 0, 3, 1)
    %dn: f32[4, 2] (5, 1) = aten.slice.Tensor(%dz, 1, 3, 5, 1)
    %dx0: f32[4, 2] = aten.neg(%dn)
    %dy0: f32[4, 3] = aten.threshold_backward(%dr, %r, 0)
    %dy1: f32[4, 3] = aten.add.Tensor(%dy, %dy0, alpha=1)
    %cos: f32[4, 3] = aten.cos(%h)
    %dh: f32[4, 3] = aten.mul.Tensor(%dy1, %cos)
    %w_again: f32[3, 2] = aten.t(%wt)
    %dx1: f32[4, 2] = aten.mm(%dh, %w_again)
    %dht: f32[3, 4] (1, 3) = aten.t(%dh)
    %dw: f32[3, 2] = aten.mm(%dht, %x)
    %dx: f32[4, 2] = aten.add.Tensor(%dx0, %dx1, alpha=1)
    return %y: output 0, %z: output 1, %dw: grad 0 "w", %dx: grad 1
  })";

class SplitGraphs : public ::testing::Test {
 protected:
  struct Results {
    Tensor y, z, dw, dx;
  };

  Results eager(const Tensor& dy, const Tensor& dz) {
    const Tensor w = w_.clone().requires_grad_(), x = x_.clone().requires_grad_();
    const Tensor y = at::sin(at::mm(x, w.t()));
    const Tensor z = at::cat({at::relu(y), -x}, 1);
    std::vector<Tensor> results, tangents;
    if (dy.defined()) results.push_back(y), tangents.push_back(dy);
    if (dz.defined()) results.push_back(z), tangents.push_back(dz);
    auto grads =
        torch::autograd::grad(results, {w, x}, tangents, false, false, /*allow_unused=*/true);
    return {y.detach(), z.detach(), grads[0], grads[1]};
  }

  Results split_and_run(const Tensor& dy, const Tensor& dz) {
    const Split split = default_partition(
        Joint{.graph = ir::parse(kJoint), .signature = {}, .lifted = {}}, Options{});
    const ir::Graph backward =
        partition::drop_tangents(split.backward, {.defined = {dy.defined(), dz.defined()}});
    std::vector<Tensor> inputs = {w_, x_};
    std::vector<Tensor> outputs =
        tandem::backend("eager")->compile(split.forward, {.role = GraphRole::forward})->run(inputs);
    std::vector<Tensor> saved(outputs.begin() + 2, outputs.end());
    EXPECT_EQ(saved.size(), split.saved.size());
    saved.push_back(dy);
    saved.push_back(dz);
    std::vector<Tensor> grads =
        tandem::backend("eager")->compile(backward, {.role = GraphRole::backward})->run(saved);
    return {outputs[0], outputs[1], grads[0], grads[1]};
  }

  void expect_equal(const Tensor& dy, const Tensor& dz) {
    const Results expected = eager(dy, dz), got = split_and_run(dy, dz);
    EXPECT_TRUE(got.y.equal(expected.y));
    EXPECT_TRUE(got.z.equal(expected.z));
    ASSERT_EQ(got.dw.defined(), expected.dw.defined());
    EXPECT_TRUE(!got.dw.defined() || got.dw.equal(expected.dw));
    ASSERT_EQ(got.dx.defined(), expected.dx.defined());
    EXPECT_TRUE(!got.dx.defined() || got.dx.equal(expected.dx));
  }

  Tensor w_ = torch::randn({3, 2}), x_ = torch::randn({4, 2});
  Tensor dy_ = torch::randn({4, 3}), dz_ = torch::randn({4, 5});
};

TEST_F(SplitGraphs, GiveAutogradsGradients) { expect_equal(dy_, dz_); }
TEST_F(SplitGraphs, GiveAutogradsGradientsOfTheFirstResultAlone) { expect_equal(dy_, {}); }
TEST_F(SplitGraphs, GiveAutogradsGradientsOfTheSecondResultAlone) { expect_equal({}, dz_); }

}  // namespace
}  // namespace tandem
