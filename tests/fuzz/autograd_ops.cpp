#include "fuzz/custom_functions.h"
#include "fuzz/op.h"
#include "fuzz/patterns.h"

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {

/// What speaks with autograd itself.
std::vector<Op> autograd_ops() {
  using namespace patterns;
  return {
      OP("custom.saves_input", floating, kCustom, SavesInput::apply(x)),
      OP("custom.saves_output", floating, kCustom | kRounds, SavesOutput::apply(x)),
      OP("custom.product", same_sizes, kCustom, Product::apply(x, y)),
      OP("custom.marks_dirty", write, kCustom | kInPlace, MarksDirty::apply(x)),
      OP("custom.two_results", floating, kCustom, TwoResults::apply(x)),
      OP("custom.returns_view", differentiable, kCustom, ReturnsView::apply(x)),
      OP("custom.returns_input", differentiable, kCustom, ReturnsInput::apply(x)),
      OP("custom.undefined_gradient", same_sizes, kCustom, UndefinedGradient::apply(x, y)),
      OP("custom.writes_saved", floating, kCustom, WritesSaved::apply(x)),
      OP("custom.writes_gradient", floating, kCustom, WritesGradient::apply(x)),
      OP("custom.recomputes", floating, kCustom | kRounds, Recomputes::apply(x)),
      OP("custom.scales", floating, kCustom, Scales::apply(x, c)),
      OP("grad", root_and_input, kInnerGrad,
         torch::autograd::grad({x.sum()}, {y}, {}, true, j != 0, true)),
      OP("grad.tangent", root_and_input, kInnerGrad,
         torch::autograd::grad({x}, {y}, {at::ones_like(x)}, true, j != 0, true)),
      OP("requires_grad_", fresh_leaf, kToggle, x.requires_grad_()),
      OP("detach_", differentiable, kToggle, x.detach_()),
      OP("leaf", floating, kPlain, x.detach().clone().requires_grad_()),
      OP("leaf.view", floating, kPlain, x.detach().requires_grad_()),
      OP("requires_grad_.off", nullptr, kToggle | kNoResult, x.requires_grad_(false)),
      OP("grad_mode.off", nullptr, kNoResult, (at::GradMode::set_enabled(false), at::Tensor())),
      OP("grad_mode.on", nullptr, kNoResult, (at::GradMode::set_enabled(true), at::Tensor())),
  };
}

}  // namespace tandem::fuzz
