/// Every optimizer of the C++ front end, stepping outside on gradients of a compiled loss.
#include "support/models.h"
#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace optim = torch::optim;
using Tensors = std::vector<at::Tensor>;

struct OptimizerCase {
  const char* name;
  std::unique_ptr<optim::Optimizer> (*make)(const Tensors& parameters);
};
std::ostream& operator<<(std::ostream& out, const OptimizerCase& test_case) {
  return out << test_case.name;
}

template <class Optimizer>
std::unique_ptr<optim::Optimizer> with(const Tensors& parameters, auto options) {
  return std::make_unique<Optimizer>(parameters, options);
}

const OptimizerCase kOptimizers[] = {
    {"Sgd", [](const Tensors& p) { return with<optim::SGD>(p, optim::SGDOptions(0.1)); }},
    {"SgdMomentum",
     [](const Tensors& p) {
       return with<optim::SGD>(
           p, optim::SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.01));
     }},
    {"SgdNesterov",
     [](const Tensors& p) {
       return with<optim::SGD>(p, optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
     }},
    {"Adam", [](const Tensors& p) { return with<optim::Adam>(p, optim::AdamOptions(0.01)); }},
    {"AdamAmsgrad",
     [](const Tensors& p) {
       return with<optim::Adam>(p, optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.01));
     }},
    {"AdamW", [](const Tensors& p) { return with<optim::AdamW>(p, optim::AdamWOptions(0.01)); }},
    {"AdamWAmsgrad",
     [](const Tensors& p) {
       return with<optim::AdamW>(p, optim::AdamWOptions(0.01).amsgrad(true));
     }},
    {"Adagrad",
     [](const Tensors& p) {
       return with<optim::Adagrad>(p, optim::AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.01));
     }},
    {"RmsProp",
     [](const Tensors& p) { return with<optim::RMSprop>(p, optim::RMSpropOptions(0.01)); }},
    {"RmsPropCentered",
     [](const Tensors& p) {
       return with<optim::RMSprop>(p, optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
     }},
    {"Lbfgs",
     [](const Tensors& p) { return with<optim::LBFGS>(p, optim::LBFGSOptions(0.3).max_iter(4)); }},
    {"LbfgsStrongWolfe",
     [](const Tensors& p) {
       return with<optim::LBFGS>(p,
                                 optim::LBFGSOptions(1).max_iter(4).line_search_fn("strong_wolfe"));
     }},
};

/// Losses of each step and, at the end, parameters and gradients.
Tensors train(const OptimizerCase& test_case, bool compiled) {
  torch::manual_seed(3);
  Mlp net(6, 8, 3, 0.0);
  const at::Tensor x = torch::randn({10, 6}), y = torch::randint(3, {10});
  const auto eager = [&](const at::Tensor& input, const at::Tensor& target) {
    return F::cross_entropy(net->forward(input), target);
  };
  auto function = tandem::compile(net, eager);
  std::unique_ptr<optim::Optimizer> optimizer = test_case.make(net->parameters());
  Tensors record;
  for (int i = 0; i < 6; ++i) {
    const at::Tensor loss = optimizer->step([&] {
      at::AutoGradMode grad(true);  // LBFGS asks for the loss under no_grad
      optimizer->zero_grad();
      at::Tensor value = compiled ? function(x, y) : eager(x, y);
      value.backward();
      return value;
    });
    record.push_back(loss.detach());
  }
  if (compiled) {
    EXPECT_EQ(function.stats().traces, 1) << function.report();
  }
  for (const at::Tensor& parameter : net->parameters()) {
    record.push_back(parameter.detach());
    record.push_back(parameter.grad());
  }
  return record;
}

class Optimizers : public ::testing::TestWithParam<OptimizerCase> {
  OneThread one_thread_;
};

TEST_P(Optimizers, StepOnCompiledGradientsAsOnEagerOnes) {
  WideRun wide_run;
  const Tensors eager = [&] {
    const WideRun::Scope scope(wide_run);
    return train(GetParam(), false);
  }();
  const Tensors compiled = train(GetParam(), true);
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_bits(eager[i], compiled[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::test
