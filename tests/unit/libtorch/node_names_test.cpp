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

TEST(NodeNames, TellTheFormulaOfADeterminant) {
  const at::Tensor x = torch::eye(2).requires_grad_();
  EXPECT_TRUE(is_det_formula(*at::det(x).grad_fn()));
  EXPECT_TRUE(is_det_formula(*at::linalg_det(x).grad_fn()));
  EXPECT_FALSE(is_det_formula(*(x * 2).grad_fn()));
}

}  // namespace
}  // namespace tandem::libtorch
