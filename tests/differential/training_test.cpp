/// Whole training programs: twenty steps through Tandem end with the same bits as twenty eager
/// steps.
#include "support/models.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

namespace tandem::testing {
namespace {

namespace F = torch::nn::functional;

enum class Optimizer { Sgd, Adam };

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Optimizer kind,
                                                        const std::vector<at::Tensor>& parameters) {
  if (kind == Optimizer::Sgd) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-3));
}

struct Batch {
  at::Tensor x, y;
};

struct Outcome {
  std::vector<at::Tensor> losses, parameters, gradients, buffers;
  std::vector<uint32_t> buffer_versions;
  at::Tensor generator_state;
};

/// Trains a fresh model from the same seed, eagerly or compiled.
template <class Net, class Step>
Outcome train(const std::function<Net()>& make_net, const std::function<Batch(int)>& make_batch,
              Step step, Optimizer kind, bool compiled) {
  torch::manual_seed(11);
  Net net = make_net();
  std::vector<Batch> batches;
  // What rounds grows from step to step.
  const int steps = backend_rounds() ? 3 : 20;
  for (int i = 0; i < steps; ++i) batches.push_back(make_batch(i));
  auto optimizer = make_optimizer(kind, net->parameters());
  auto eager = [&](const at::Tensor& x, const at::Tensor& y) { return step(net, x, y); };
  auto function = tandem::compile(net, eager);
  torch::manual_seed(12);
  Outcome outcome;
  for (const Batch& batch : batches) {
    optimizer->zero_grad();
    at::Tensor loss = compiled ? function(batch.x, batch.y) : eager(batch.x, batch.y);
    loss.backward();
    optimizer->step();
    outcome.losses.push_back(loss.detach());
  }
  if (compiled) {
    EXPECT_EQ(function.stats().traces, 1) << function.report();
    EXPECT_EQ(function.stats().zero_fallbacks, 0);
  }
  for (const auto& parameter : net->parameters()) {
    outcome.parameters.push_back(parameter.detach().clone());
    outcome.gradients.push_back(parameter.grad());
  }
  for (const auto& buffer : net->buffers()) {
    outcome.buffers.push_back(buffer.clone());
    outcome.buffer_versions.push_back(buffer._version());
  }
  outcome.generator_state = at::detail::getDefaultCPUGenerator().get_state();
  return outcome;
}

void expect_equal(const Outcome& eager, const Outcome& compiled) {
  ASSERT_EQ(eager.losses.size(), compiled.losses.size());
  for (size_t i = 0; i < eager.losses.size(); ++i) {
    EXPECT_TRUE(same_bits(eager.losses[i], compiled.losses[i])) << "loss of step " << i;
  }
  for (size_t i = 0; i < eager.parameters.size(); ++i) {
    EXPECT_TRUE(same_bits(eager.parameters[i], compiled.parameters[i])) << "parameter " << i;
    EXPECT_TRUE(same_bits(eager.gradients[i], compiled.gradients[i])) << "gradient " << i;
  }
  for (size_t i = 0; i < eager.buffers.size(); ++i) {
    EXPECT_TRUE(same_bits(eager.buffers[i], compiled.buffers[i])) << "buffer " << i;
  }
  EXPECT_EQ(eager.buffer_versions, compiled.buffer_versions);
  EXPECT_TRUE(same_bits(eager.generator_state, compiled.generator_state)) << "random stream";
}

template <class Net, class Step>
void check(const std::function<Net()>& make_net, const std::function<Batch(int)>& make_batch,
           Step step) {
  for (Optimizer kind : {Optimizer::Sgd, Optimizer::Adam}) {
    SCOPED_TRACE(kind == Optimizer::Sgd ? "SGD" : "Adam");
    WideRun wide_run;
    const Outcome eager = [&] {
      const WideRun::Scope scope(wide_run);
      return train<Net>(make_net, make_batch, step, kind, false);
    }();
    expect_equal(eager, train<Net>(make_net, make_batch, step, kind, true));
  }
}

TEST(Training, MlpWithDropout) {
  check<Mlp>([] { return Mlp(20, 64, 5, 0.3); },
             [](int) { return Batch{torch::randn({16, 20}), torch::randint(5, {16})}; },
             [](Mlp& net, const at::Tensor& x, const at::Tensor& y) {
               return F::cross_entropy(net->forward(x), y);
             });
}

TEST(Training, ConvNetWithBatchNormInTraining) {
  check<ConvNet>([] { return ConvNet(); },
                 [](int) { return Batch{torch::randn({4, 3, 16, 16}), torch::randint(10, {4})}; },
                 [](ConvNet& net, const at::Tensor& x, const at::Tensor& y) {
                   return F::cross_entropy(net->forward(x), y);
                 });
}

TEST(Training, ConvNetWithBatchNormInEvaluation) {
  check<ConvNet>(
      [] {
        ConvNet net;
        net->eval();
        return net;
      },
      [](int) { return Batch{torch::randn({4, 3, 16, 16}), torch::randint(10, {4})}; },
      [](ConvNet& net, const at::Tensor& x, const at::Tensor& y) {
        return F::cross_entropy(net->forward(x), y);
      });
}

at::Tensor next_token_loss(Gpt& net, const at::Tensor& ids, const at::Tensor& targets) {
  const at::Tensor logits = net->forward(ids);
  return F::cross_entropy(logits.view({-1, logits.size(-1)}), targets.view({-1}));
}

Batch token_batch(int) { return {torch::randint(31, {3, 12}), torch::randint(31, {3, 12})}; }

TEST(Training, GptWithMatmulAttentionAndTiedEmbeddings) {
  check<Gpt>([] { return Gpt(GptOptions{}); }, token_batch, next_token_loss);
}

TEST(Training, GptWithFusedAttentionAndTiedEmbeddings) {
  check<Gpt>([] { return Gpt(GptOptions{.fused_attention = true}); }, token_batch, next_token_loss);
}

}  // namespace
}  // namespace tandem::testing
