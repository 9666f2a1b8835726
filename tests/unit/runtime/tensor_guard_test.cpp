#include "runtime/guards/tensor_guard.h"

#include "libtorch/private_members.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/torch.h>

namespace tandem::runtime {
namespace {

struct Flip {
  const char* what;
  std::function<at::Tensor(const at::Tensor&)> change;
  const char* difference;
};

TEST(TensorGuard, EveryFieldFlippedOnce) {
  const at::Tensor model = torch::ones({2, 3});
  const TensorGuard guard(model);
  EXPECT_TRUE(guard.matches(model));
  EXPECT_TRUE(guard.matches(torch::zeros({2, 3})));
  EXPECT_TRUE(guard.matches(torch::zeros({4, 3}).slice(0, 2, 4))) << "place in memory is free";
  using T = at::Tensor;
  const std::vector<Flip> flips{
      {"undefined", [](const T&) { return T(); }, "is undefined, compiled for a defined tensor"},
      {"dtype", [](const T& t) { return t.to(torch::kDouble); }, "dtype is f64, compiled for f32"},
      {"rank", [](const T& t) { return t.unsqueeze(0); }, "size is [1, 2, 3], compiled for [2, 3]"},
      {"size", [](const T&) { return torch::ones({2, 4}); }, "size is [2, 4], compiled for [2, 3]"},
      {"stride", [](const T&) { return torch::ones({3, 2}).t(); },
       "stride is [1, 2], compiled for [3, 1]"},
      {"requires_grad", [](const T& t) { return t.clone().requires_grad_(); },
       "requires_grad is true, compiled for false"},
      {"history", [](const T& t) { return t.clone().requires_grad_() * 1; },
       "requires_grad is true, compiled for false"},
      {"device", [](const T& t) { return t.to(torch::kMeta); }, "device is meta, compiled for cpu"},
      {"negative bit", [](const T& t) { return t._neg_view(); },
       "is a lazy negation, compiled for an ordinary tensor"},
      {"inference tensor",
       [](const T& t) {
         c10::InferenceMode mode;
         return t.clone();
       },
       "is an inference tensor, compiled for an ordinary tensor"},
  };
  for (const Flip& flip : flips) {
    const T changed = flip.change(model);
    // One that was stored says the same.
    for (const TensorGuard& same : {guard, TensorGuard(guard.row())}) {
      EXPECT_TRUE(same.matches(model));
      EXPECT_FALSE(same.matches(changed)) << flip.what;
      EXPECT_NE(same.difference(changed).find(flip.difference), std::string::npos)
          << flip.what << ": " << same.difference(changed);
    }
  }
}

TEST(TensorGuard, ARowHoldsEveryKindOfTensor) {
  at::Tensor number = torch::ones({});
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  const at::Tensor leaf = torch::ones({2, 3}, torch::requires_grad());
  const std::vector<at::Tensor> tensors{at::Tensor(),
                                        number,
                                        leaf,
                                        leaf * 2,
                                        torch::ones({3, 2}).t(),
                                        leaf.detach()._neg_view(),
                                        torch::ones({2}, torch::kMeta)};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorGuard again(TensorGuard(tensors[i]).row());
    for (size_t k = 0; k < tensors.size(); ++k)
      EXPECT_EQ(again.matches(tensors[k]), i == k) << i << " and " << k;
    EXPECT_EQ(again.to_string(), TensorGuard(tensors[i]).to_string());
  }
}

TEST(TensorGuard, SizesThatDoNotFitIntoTheTensorLieElsewhere) {
  const at::Tensor model = torch::ones({2, 1, 2, 1, 2, 1, 3});
  const TensorGuard guard(model);
  EXPECT_TRUE(guard.matches(torch::zeros({2, 1, 2, 1, 2, 1, 3})));
  EXPECT_FALSE(guard.matches(torch::ones({2, 1, 2, 1, 2, 1, 4})));
  EXPECT_FALSE(guard.matches(model.transpose(0, 2)));
  EXPECT_FALSE(guard.matches(torch::ones({2, 3})));
}

TEST(TensorGuard, TheWordOfTraitsHoldsWhatItSays) {
  const auto traits = [](const at::Tensor& tensor) {
    EXPECT_TRUE(libtorch::has_traits(*tensor.unsafeGetTensorImpl()));
    return libtorch::traits(*tensor.unsafeGetTensorImpl());
  };
  const at::Tensor model = torch::ones({});
  at::Tensor number = torch::ones({});
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_NE(traits(model), traits(number));
  EXPECT_NE(traits(model), traits(model.to(torch::kDouble)));
  EXPECT_NE(traits(model), traits(model.to(torch::kMeta)));
  EXPECT_NE(traits(model), traits(at::Tensor())) << "an undefined tensor computes its strides";
  // Nor anything else: what the memory of a new tensor held before is none of it.
  std::vector<at::Tensor> many;  // more than lie ready to be used again
  for (int contents : {1, 254}) {
    mallopt(M_PERTURB, contents);
    for (int i = 0; i < 50; ++i) {
      many.push_back(torch::ones({5, 3}));
      EXPECT_EQ(traits(model), traits(many.back())) << contents;
    }
  }
  mallopt(M_PERTURB, 0);
}

TEST(TensorGuard, LeavesAndHistories) {
  const at::Tensor leaf = torch::ones({2}, torch::requires_grad()), history = leaf * 1;
  EXPECT_TRUE(TensorGuard(leaf).matches(torch::zeros({2}, torch::requires_grad())));
  EXPECT_FALSE(TensorGuard(leaf).matches(history));
  EXPECT_FALSE(TensorGuard(leaf).matches(torch::ones({2})));
  EXPECT_FALSE(TensorGuard(history).matches(leaf));
  EXPECT_EQ(TensorGuard(leaf).difference(history), "is no leaf, compiled for a leaf");
  EXPECT_EQ(TensorGuard(history).difference(leaf), "is a leaf, compiled for a non-leaf");
}

TEST(TensorGuard, ViewsAreAskedThroughTheirBase) {
  const at::Tensor base = torch::ones({4}), view = base.slice(0, 0, 2);
  const TensorGuard guard(view);
  EXPECT_TRUE(guard.matches(view));
  base.mul_(torch::ones({4}, torch::requires_grad()));
  EXPECT_FALSE(guard.matches(view));
}

TEST(TensorGuard, NumbersInDisguiseAndForwardDerivatives) {
  const at::Tensor zero_d = torch::ones({}, torch::kDouble);
  at::Tensor number = torch::ones({}, torch::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_FALSE(TensorGuard(zero_d).matches(number));
  EXPECT_EQ(TensorGuard(zero_d).difference(number), "is a number, compiled for a tensor");

  const uint64_t level = torch::autograd::forward_ad::enter_dual_level();
  at::Tensor dual = torch::ones({2});
  const TensorGuard guard(dual);
  dual._set_fw_grad(torch::ones({2}), level, /*is_inplace_op=*/false);
  EXPECT_FALSE(guard.matches(dual));
  EXPECT_EQ(guard.difference(dual), "carries a forward-mode derivative");
  torch::autograd::forward_ad::exit_dual_level(level);
}

}  // namespace
}  // namespace tandem::runtime
