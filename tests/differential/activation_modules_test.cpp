/// Activations, dropout, distances and shapes of the C++ front end: compiled as in eager.
#include "support/like_eager.h"
#include "support/module_cases.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;

Tensors none() { return {}; }

ModuleCase pair(std::string name, std::vector<int64_t> sizes, auto make) {
  return module_case(
      std::move(name), make, [=] { return Tensors{torch::randn(sizes), torch::randn(sizes)}; },
      none, [](auto& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; });
}

/// In place on an intermediate: in place on a leaf is an error in eager.
template <class Make>
ModuleCase in_place(std::string name, Make make) {
  return module_case(
      std::move(name), make, [] { return Tensors{torch::randn({2, 3, 4, 5})}; }, none,
      [](auto& m, const Tensors& x) { return Tensors{m(x[0] * 2)}; });
}

const ModuleCase kActivations[] = {
    unary("ELU", {2, 3, 4, 5}, [] { return nn::ELU(nn::ELUOptions().alpha(0.7)); }),
    in_place("ELU_inplace", [] { return nn::ELU(nn::ELUOptions().inplace(true)); }),
    unary("SELU", {4, 5}, [] { return nn::SELU(); }),
    in_place("SELU_inplace", [] { return nn::SELU(nn::SELUOptions(true)); }),
    unary("Hardshrink", {4, 5}, [] { return nn::Hardshrink(0.3); }),
    unary("Hardtanh", {2, 3, 4, 5},
          [] { return nn::Hardtanh(nn::HardtanhOptions().max_val(0.5)); }),
    in_place("Hardtanh_inplace", [] { return nn::Hardtanh(nn::HardtanhOptions().inplace(true)); }),
    unary("LeakyReLU", {2, 3, 4, 5}, [] { return nn::LeakyReLU(); }),
    in_place("LeakyReLU_inplace",
             [] { return nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)); }),
    unary("LogSigmoid", {2, 3, 4, 5}, [] { return nn::LogSigmoid(); }),
    unary("Softmax", {4, 5}, [] { return nn::Softmax(1); }),
    unary("Softmin", {4, 5}, [] { return nn::Softmin(0); }),
    unary("LogSoftmax", {4, 5}, [] { return nn::LogSoftmax(1); }),
    unary("Softmax2d", {2, 3, 4, 5}, [] { return nn::Softmax2d(); }),
    unary("PReLU", {2, 3, 4, 5}, [] { return nn::PReLU(); }),
    unary("PReLU_perChannel", {2, 3, 4, 5},
          [] { return nn::PReLU(nn::PReLUOptions().num_parameters(3)); }),
    unary("ReLU", {2, 3, 4, 5}, [] { return nn::ReLU(); }),
    in_place("ReLU_inplace", [] { return nn::ReLU(nn::ReLUOptions(true)); }),
    unary("ReLU6", {2, 3, 4, 5}, [] { return nn::ReLU6(); }),
    in_place("ReLU6_inplace", [] { return nn::ReLU6(nn::ReLU6Options(true)); }),
    unary("RReLU", {4, 5}, [] { return nn::RReLU(); }),
    in_place("RReLU_inplace", [] { return nn::RReLU(nn::RReLUOptions().inplace(true)); }),
    unary("CELU", {4, 5}, [] { return nn::CELU(nn::CELUOptions().alpha(0.6)); }),
    in_place("CELU_inplace", [] { return nn::CELU(nn::CELUOptions().inplace(true)); }),
    unary("GLU", {4, 6}, [] { return nn::GLU(1); }),
    unary("GELU", {2, 3, 4, 5}, [] { return nn::GELU(); }),
    unary("GELU_tanh", {4, 5}, [] { return nn::GELU(nn::GELUOptions().approximate("tanh")); }),
    unary("SiLU", {2, 3, 4, 5}, [] { return nn::SiLU(); }),
    unary("Mish", {2, 3, 4, 5}, [] { return nn::Mish(); }),
    unary("Sigmoid", {4, 5}, [] { return nn::Sigmoid(); }),
    unary("Softplus", {4, 5}, [] { return nn::Softplus(nn::SoftplusOptions().beta(2)); }),
    unary("Softshrink", {4, 5}, [] { return nn::Softshrink(0.2); }),
    unary("Softsign", {4, 5}, [] { return nn::Softsign(); }),
    unary("Tanh", {4, 5}, [] { return nn::Tanh(); }),
    unary("Tanhshrink", {4, 5}, [] { return nn::Tanhshrink(); }),
    unary("Threshold", {4, 5}, [] { return nn::Threshold(0.1, 0.7); }),
    in_place("Threshold_inplace",
             [] { return nn::Threshold(nn::ThresholdOptions(0.1, 0.7).inplace(true)); }),

    unary("Dropout", {6, 7}, [] { return nn::Dropout(0.4); }),
    in_place("Dropout_inplace", [] { return nn::Dropout(nn::DropoutOptions(0.4).inplace(true)); }),
    unary("Dropout_all", {6, 7}, [] { return nn::Dropout(1.0); }),
    unary("Dropout2d", {2, 3, 4, 5}, [] { return nn::Dropout2d(0.4); }),
    unary("Dropout3d", {2, 3, 2, 4, 5}, [] { return nn::Dropout3d(0.4); }),
    unary("AlphaDropout", {6, 7}, [] { return nn::AlphaDropout(0.4); }),
    unary("FeatureAlphaDropout", {2, 3, 4, 5}, [] { return nn::FeatureAlphaDropout(0.4); }),

    pair("CosineSimilarity", {4, 5},
         [] { return nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(1)); }),
    pair("PairwiseDistance", {4, 5},
         [] { return nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(3)); }),
    unary_function("pdist", {4, 5}, [](const at::Tensor& x) { return F::pdist(x, 1.5); }),

    unary("Identity", {4, 5}, [] { return nn::Identity(); }),
    unary("Flatten", {2, 3, 4, 5}, [] { return nn::Flatten(); }),
    unary("Unflatten", {2, 12},
          [] { return nn::Unflatten(nn::UnflattenOptions(1, std::vector<int64_t>{3, 4})); }),
    unary("Linear", {4, 5}, [] { return nn::Linear(5, 3); }),
    unary("Linear_batched", {2, 4, 5},
          [] { return nn::Linear(nn::LinearOptions(5, 3).bias(false)); }),
    without_autocast(module_case(
        "Bilinear", [] { return nn::Bilinear(4, 5, 3); },
        [] { return Tensors{torch::randn({2, 4}), torch::randn({2, 5})}; }, none,
        [](nn::Bilinear& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; })),

    unary_function("gumbelSoftmax", {4, 5},
                   [](const at::Tensor& x) { return F::gumbel_softmax(x); }),
    unary_function("gumbelSoftmax_hard", {4, 5},
                   [](const at::Tensor& x) {
                     return F::gumbel_softmax(x, F::GumbelSoftmaxFuncOptions().hard(true).dim(1));
                   }),
    unary_function("normalize", {4, 5}, [](const at::Tensor& x) { return F::normalize(x); }),
    unary_function(
        "normalize_L1", {4, 5},
        [](const at::Tensor& x) { return F::normalize(x, F::NormalizeFuncOptions().p(1).dim(0)); }),
    unary_function("hardswish", {2, 3, 4, 5}, [](const at::Tensor& x) { return at::hardswish(x); }),
    unary_function("hardsigmoid", {4, 5}, [](const at::Tensor& x) { return at::hardsigmoid(x); }),
    unary_function("logit", {4, 5}, [](const at::Tensor& x) { return at::logit(x.sigmoid()); }),
    // Draws go to the elements that eager gives them to, whatever the strides.
    unary_function("dropout_image", {2, 3, 4, 5},
                   [](const at::Tensor& x) { return torch::dropout(x, 0.5, true); }),
    unary_function("bernoulli", {2, 3, 4, 5},
                   [](const at::Tensor& x) { return x * at::bernoulli(x, 0.5); }),
    unary_function("bernoulli_inplace", {2, 3, 4, 5},
                   [](const at::Tensor& x) { return x * torch::empty_like(x).bernoulli_(0.3); }),
    unary_function("uniform_inplace", {2, 3, 4, 5},
                   [](const at::Tensor& x) { return x * torch::empty_like(x).uniform_(); }),
    unary_function("normal_inplace", {2, 3, 4, 5},
                   [](const at::Tensor& x) { return x * torch::empty_like(x).normal_(); }),
    unary_function("exponential_inplace", {2, 3, 4, 5},
                   [](const at::Tensor& x) { return x * torch::empty_like(x).exponential_(); }),
    unary_function(
        "randLike", {2, 3, 4, 5},
        [](const at::Tensor& x) { return x * torch::rand_like(x) + torch::randn_like(x); }),
};

class ActivationModules : public ::testing::TestWithParam<ModuleCase> {};

TEST_P(ActivationModules, LikeEager) { expect_module_like_eager(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, ActivationModules, ::testing::ValuesIn(kActivations),
                         module_case_name);

// Autocast casts inside the kernel: a result in float32 would be another one.
TEST(ActivationModules, BilinearInAnAutocastRegionIsRefused) {
  expect_module_refused(
      module_case(
          "Bilinear", [] { return nn::Bilinear(4, 5, 3); },
          [] { return Tensors{torch::randn({2, 4}), torch::randn({2, 5})}; }, none,
          [](nn::Bilinear& m, const Tensors& x) {
            at::autocast::set_autocast_enabled(at::kCPU, true);
            return Tensors{m(x[0], x[1])};
          }),
      "autocast reaches into the kernel of aten._trilinear");
}

TEST(ActivationModules, OneHot) {
  for (const int64_t rows : {0, 4}) {
    expect_like_eager(
        [&] { return Case{{torch::randn({rows, 6}), torch::randint(6, {rows})}, {}}; },
        [](const Tensors& a) {
          const at::Tensor marks = F::one_hot(a[1], 6);
          return Tensors{a[0] * marks, marks * 2};
        });
  }
}

// Its checks of the data are made in each call.
TEST(ActivationModules, OneHotChecksTheClasses) {
  const auto text_of = [](const auto& function, const at::Tensor& classes) -> std::string {
    try {
      function(classes);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  for (const int64_t count : {-2, 0, 3}) {
    const auto function = [=](const at::Tensor& x) { return F::one_hot(x, count); };
    const auto compiled = compile(function);
    for (const std::vector<int64_t>& classes :
         {std::vector<int64_t>{0, 1}, {2, 0}, {0, 3}, {1, -1}, {7, 1}}) {
      const at::Tensor x = torch::tensor(classes);
      const std::string expected = text_of(function, x);
      EXPECT_EQ(text_of(compiled, x), expected);
      if (expected == "no error") EXPECT_TRUE(compiled(x).equal(function(x)));
    }
  }
}

}  // namespace
}  // namespace tandem::test
