/// Losses of the C++ front end: compiled as in eager.
#include "support/module_cases.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;

using Make = std::function<Tensors()>;

/// Of input and target.
template <class MakeModule>
ModuleCase loss(std::string name, Make inputs, Make targets, MakeModule make) {
  return module_case(std::move(name), make, std::move(inputs), std::move(targets),
                     [](auto& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; });
}

/// Of three tensors.
template <class MakeModule>
ModuleCase loss3(std::string name, Make inputs, Make targets, MakeModule make) {
  return module_case(std::move(name), make, std::move(inputs), std::move(targets),
                     [](auto& m, const Tensors& x) { return Tensors{m(x[0], x[1], x[2])}; });
}

Make randn(std::vector<int64_t> sizes, int count = 1) {
  return [=] {
    Tensors tensors;
    for (int i = 0; i < count; ++i) tensors.push_back(torch::randn(sizes));
    return tensors;
  };
}
Make rand(std::vector<int64_t> sizes) {
  return [=] { return Tensors{torch::rand(sizes)}; };
}
Make classes(int64_t limit, std::vector<int64_t> sizes) {
  return [=] { return Tensors{torch::randint(limit, sizes)}; };
}
/// -1 or 1.
Make signs(std::vector<int64_t> sizes) {
  return [=] { return Tensors{(torch::randint(2, sizes) * 2 - 1).to(torch::kFloat)}; };
}
Make nothing() {
  return [] { return Tensors{}; };
}

at::Tensor weights(int64_t count) { return torch::linspace(0.5, 1.5, count); }

const ModuleCase kLosses[] = {
    loss("L1Loss", randn({4, 5}), randn({4, 5}), [] { return nn::L1Loss(); }),
    loss("L1Loss_none", randn({4, 5}), randn({4, 5}), [] { return nn::L1Loss(torch::kNone); }),
    loss("MSELoss", randn({2, 3, 4, 5}), randn({2, 3, 4, 5}), [] { return nn::MSELoss(); }),
    loss("MSELoss_sum", randn({4, 5}), randn({4, 5}), [] { return nn::MSELoss(torch::kSum); }),
    loss("MSELoss_bothSides", randn({4, 5}, 2), nothing(),
         [] { return nn::MSELoss(torch::kNone); }),
    loss("SmoothL1Loss", randn({4, 5}), randn({4, 5}), [] { return nn::SmoothL1Loss(); }),
    loss("SmoothL1Loss_none", randn({4, 5}), randn({4, 5}),
         [] { return nn::SmoothL1Loss(nn::SmoothL1LossOptions(torch::kNone)); }),
    loss("HuberLoss", randn({4, 5}), randn({4, 5}),
         [] { return nn::HuberLoss(nn::HuberLossOptions().delta(0.5)); }),
    loss("HuberLoss_none", randn({4, 5}), randn({4, 5}),
         [] { return nn::HuberLoss(nn::HuberLossOptions(torch::kNone)); }),
    module_case(
        "BCELoss", [] { return nn::BCELoss(); }, randn({4, 5}), rand({4, 5}),
        [](nn::BCELoss& m, const Tensors& x) { return Tensors{m(x[0].sigmoid(), x[1])}; }),
    module_case(
        "BCELoss_weighted",
        [] { return nn::BCELoss(nn::BCELossOptions().weight(weights(5)).reduction(torch::kSum)); },
        randn({4, 5}), rand({4, 5}),
        [](nn::BCELoss& m, const Tensors& x) { return Tensors{m(x[0].sigmoid(), x[1])}; }),
    loss("BCEWithLogitsLoss", randn({4, 5}), rand({4, 5}), [] { return nn::BCEWithLogitsLoss(); }),
    loss("BCEWithLogitsLoss_weighted", randn({4, 5}), rand({4, 5}),
         [] {
           return nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions()
                                            .weight(weights(5))
                                            .pos_weight(weights(5) * 2)
                                            .reduction(torch::kNone));
         }),
    loss("KLDivLoss", randn({4, 5}), rand({4, 5}), [] { return nn::KLDivLoss(torch::kBatchMean); }),
    loss("KLDivLoss_logTarget", randn({4, 5}, 2), nothing(),
         [] { return nn::KLDivLoss(nn::KLDivLossOptions(torch::kSum).log_target(true)); }),
    loss("CrossEntropyLoss", randn({4, 5}), classes(5, {4}), [] { return nn::CrossEntropyLoss(); }),
    loss("CrossEntropyLoss_image", randn({2, 5, 3, 4}), classes(5, {2, 3, 4}),
         [] {
           return nn::CrossEntropyLoss(
               nn::CrossEntropyLossOptions().ignore_index(1).label_smoothing(0.1));
         }),
    loss("CrossEntropyLoss_weighted", randn({4, 5}), classes(5, {4}),
         [] {
           return nn::CrossEntropyLoss(
               nn::CrossEntropyLossOptions().weight(weights(5)).reduction(torch::kNone));
         }),
    loss("CrossEntropyLoss_probabilities", randn({4, 5}), rand({4, 5}),
         [] { return nn::CrossEntropyLoss(); }),
    loss("NLLLoss", randn({4, 5}), classes(5, {4}), [] { return nn::NLLLoss(); }),
    loss("NLLLoss_image", randn({2, 5, 3, 4}), classes(5, {2, 3, 4}),
         [] {
           return nn::NLLLoss(
               nn::NLLLossOptions().weight(weights(5)).ignore_index(2).reduction(torch::kSum));
         }),
    loss("NLLLoss_imageNone", randn({2, 5, 3, 4}), classes(5, {2, 3, 4}),
         [] { return nn::NLLLoss(nn::NLLLossOptions().reduction(torch::kNone)); }),
    loss("NLLLoss_volume", randn({2, 5, 2, 3, 4}), classes(5, {2, 2, 3, 4}),
         [] { return nn::NLLLoss(); }),
    loss("PoissonNLLLoss", randn({4, 5}), rand({4, 5}),
         [] { return nn::PoissonNLLLoss(nn::PoissonNLLLossOptions().full(false)); }),
    loss("HingeEmbeddingLoss", randn({4, 5}), signs({4, 5}),
         [] { return nn::HingeEmbeddingLoss(nn::HingeEmbeddingLossOptions().margin(0.7)); }),
    loss("SoftMarginLoss", randn({4, 5}), signs({4, 5}), [] { return nn::SoftMarginLoss(); }),
    loss("MultiLabelSoftMarginLoss", randn({4, 5}), classes(2, {4, 5}),
         [] {
           return nn::MultiLabelSoftMarginLoss(
               nn::MultiLabelSoftMarginLossOptions().weight(weights(5)));
         }),
    loss("MultiMarginLoss", randn({4, 5}), classes(5, {4}), [] { return nn::MultiMarginLoss(); }),
    loss("MultiMarginLoss_squared", randn({4, 5}), classes(5, {4}),
         [] {
           return nn::MultiMarginLoss(nn::MultiMarginLossOptions().p(2).reduction(torch::kNone));
         }),
    loss(
        "MultiLabelMarginLoss", randn({3, 4}),
        [] { return Tensors{torch::tensor({{3, 0, -1, 1}, {1, -1, 0, 0}, {0, 1, 2, 3}})}; },
        [] { return nn::MultiLabelMarginLoss(); }),
    loss(
        "MultiLabelMarginLoss_none", randn({3, 4}),
        [] { return Tensors{torch::tensor({{3, 0, -1, 1}, {1, -1, 0, 0}, {0, 1, 2, 3}})}; },
        [] { return nn::MultiLabelMarginLoss(torch::kNone); }),
    loss3("CosineEmbeddingLoss", randn({4, 5}, 2), signs({4}),
          [] { return nn::CosineEmbeddingLoss(nn::CosineEmbeddingLossOptions().margin(0.2)); }),
    loss3("MarginRankingLoss", randn({4}, 2), signs({4}),
          [] { return nn::MarginRankingLoss(nn::MarginRankingLossOptions().margin(0.3)); }),
    loss3("TripletMarginLoss", randn({4, 5}, 3), nothing(),
          [] { return nn::TripletMarginLoss(nn::TripletMarginLossOptions().swap(true)); }),
    loss3("TripletMarginWithDistanceLoss", randn({4, 5}, 3), nothing(),
          [] { return nn::TripletMarginWithDistanceLoss(); }),
    loss3("TripletMarginWithDistanceLoss_own", randn({4, 5}, 3), nothing(),
          [] {
            return nn::TripletMarginWithDistanceLoss(
                nn::TripletMarginWithDistanceLossOptions()
                    .distance_function([](const at::Tensor& a, const at::Tensor& b) {
                      return (a - b).abs().sum(1);
                    })
                    .swap(true));
          }),
};

class LossModules : public ::testing::TestWithParam<ModuleCase> {};

TEST_P(LossModules, LikeEager) { expect_module_like_eager(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, LossModules, ::testing::ValuesIn(kLosses), module_case_name);

// The lengths decide sizes inside; given as lists, they are read with a data pointer all the same.
TEST(LossModules, CtcLossIsRefused) {
  expect_module_refused(module_case(
                            "CTCLoss", [] { return nn::CTCLoss(); }, randn({6, 2, 5}),
                            [] {
                              return Tensors{torch::randint(1, 5, {2, 3}), torch::tensor({6, 5}),
                                             torch::tensor({3, 2})};
                            },
                            [](nn::CTCLoss& m, const Tensors& x) {
                              return Tensors{m(x[0].log_softmax(2), x[1], x[2], x[3])};
                            }),
                        "_ctc_loss.Tensor has a result whose size depends on data");
  expect_module_refused(
      function_case("ctcLoss", randn({6, 2, 5}), classes(4, {2, 3}),
                    [](const Tensors& x) {
                      return Tensors{at::ctc_loss(x[0].log_softmax(2), x[1] + 1, {6, 5}, {3, 2})};
                    }),
      "reads the data of a tensor");
}

// It sorts examples into clusters: how many fall into each is data.
TEST(LossModules, AdaptiveLogSoftmaxIsRefused) {
  expect_module_refused(module_case(
                            "AdaptiveLogSoftmaxWithLoss",
                            [] {
                              return nn::AdaptiveLogSoftmaxWithLoss(
                                  nn::AdaptiveLogSoftmaxWithLossOptions(16, 10, {4, 7}));
                            },
                            randn({3, 16}), classes(10, {3}),
                            [](nn::AdaptiveLogSoftmaxWithLoss& m, const Tensors& x) {
                              return Tensors{m->forward(x[0], x[1]).output};
                            }),
                        "trace: ");
}

// Its other half has fixed sizes.
TEST(LossModules, AdaptiveLogSoftmaxGivesAllLogProbabilities) {
  expect_module_like_eager(module_case(
      "AdaptiveLogSoftmaxWithLoss",
      [] {
        return nn::AdaptiveLogSoftmaxWithLoss(
            nn::AdaptiveLogSoftmaxWithLossOptions(6, 10, {4, 7}).div_value(2));
      },
      randn({3, 6}), nothing(),
      [](nn::AdaptiveLogSoftmaxWithLoss& m, const Tensors& x) {
        return Tensors{m->log_prob(x[0])};
      }));
}

}  // namespace
}  // namespace tandem::test
