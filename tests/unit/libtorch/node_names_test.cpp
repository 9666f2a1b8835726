// libtorch's own code makes every node that Tandem knows by name, in the version that this was
// built for.
#include "libtorch/node_names.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::libtorch {
namespace {

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
};

TEST(NodeNames, TellCustomFunctions) {
  const at::Tensor x = torch::ones({2}).requires_grad_();
  EXPECT_TRUE(is_custom_function(*Twice::apply(x).grad_fn()));
  EXPECT_FALSE(is_custom_function(*(x * 2).grad_fn()));
}

struct OfMany : torch::autograd::Function<OfMany> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& x, bool materialize) {
    context->save_for_backward({x, x + 1});
    context->saved_data["number"] = 3;
    context->set_materialize_grads(materialize);
    return {x * 2, x * 3};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], at::Tensor()};
  }
};

// The member lies in a template of the user's, and no header of libtorch's shows it.
TEST(NodeNames, TellWhichCustomFunctionsGetZeros) {
  const at::Tensor x = torch::ones({2}).requires_grad_();
  EXPECT_TRUE(materializes_gradients(*Twice::apply(x).grad_fn()));
  EXPECT_TRUE(materializes_gradients(*OfMany::apply(x, true)[1].grad_fn()));
  EXPECT_FALSE(materializes_gradients(*OfMany::apply(x, false)[1].grad_fn()));
}

TEST(NodeNames, TellWhichGradientAHookIsCalledWith) {
  const at::Tensor x = torch::ones({4}).requires_grad_();
  const std::vector<at::Tensor> parts = (x * 2).chunk(2);
  parts[1].register_hook([](const at::Tensor& gradient) { return gradient; });
  auto& hooks = parts[1].grad_fn()->tensor_pre_hooks();
  ASSERT_EQ(hooks.size(), 1u);
  EXPECT_EQ(gradient_of_hook(*hooks[0]), 1u);
}

TEST(NodeNames, TellTheFormulaOfADeterminant) {
  const at::Tensor x = torch::eye(2).requires_grad_();
  EXPECT_TRUE(is_det_formula(*at::det(x).grad_fn()));
  EXPECT_TRUE(is_det_formula(*at::linalg_det(x).grad_fn()));
  EXPECT_FALSE(is_det_formula(*(x * 2).grad_fn()));
}

TEST(NodeNames, TellFormulasOfShares) {
  const at::Tensor x = torch::ones({2}).requires_grad_();
  for (const at::Tensor& y : {x.max(), x.min(), x.median(), x.nanmedian()})
    EXPECT_TRUE(is_formula_of_shares(*y.grad_fn())) << y.grad_fn()->name();
  EXPECT_FALSE(is_formula_of_shares(*std::get<0>(x.max(0)).grad_fn()));
  EXPECT_FALSE(is_formula_of_shares(*x.amax().grad_fn()));
}

}  // namespace
}  // namespace tandem::libtorch
