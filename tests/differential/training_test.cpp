/// Whole training programs: twenty steps through Tandem end with the same bits as twenty eager
/// steps, or within the bounds of docs/reference/differences.md.
#include "support/models.h"
#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/steps_like_eager.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <sstream>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;

enum class Optimizer { Sgd, Adam };

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Optimizer kind,
                                                        const std::vector<at::Tensor>& parameters) {
  if (kind == Optimizer::Sgd) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  return std::make_unique<torch::optim::Adam>(parameters,
                                              torch::optim::AdamOptions(1e-3).eps(adam_eps()));
}

struct Batch {
  at::Tensor x, y;
};

constexpr int kSteps = 20;

/// A fresh model from the same seed as any other of its kind, with its data.
template <class Net>
struct Model {
  Model(const std::function<Net()>& make_net, const std::function<Batch(int)>& make_batch,
        Optimizer kind)
      : net((torch::manual_seed(11), make_net())) {
    for (int i = 0; i < kSteps; ++i) batches.push_back(make_batch(i));
    optimizer = make_optimizer(kind, net->parameters());
  }

  Net net;
  std::vector<Batch> batches;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

struct Outcome {
  std::vector<at::Tensor> losses, parameters, gradients, buffers;
  std::vector<uint32_t> buffer_versions;
  at::Tensor generator_state;
};

using Loss = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)>;

/// Trains on some of the batches.
template <class Net>
Outcome train(Model<Net>& model, const Loss& loss_of, int begin, int end) {
  torch::manual_seed(12 + begin);
  Outcome outcome;
  for (int i = begin; i < end; ++i) {
    const Batch& batch = model.batches[static_cast<size_t>(i)];
    model.optimizer->zero_grad();
    at::Tensor loss = loss_of(batch.x, batch.y);
    loss.backward();
    model.optimizer->step();
    outcome.losses.push_back(loss.detach());
  }
  for (const auto& parameter : model.net->parameters()) {
    outcome.parameters.push_back(parameter.detach().clone());
    outcome.gradients.push_back(parameter.grad());
  }
  for (const auto& buffer : model.net->buffers()) {
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

/// Through data(), which no version counter sees.
template <class Net>
void take_over(Model<Net>& model, const Model<Net>& from) {
  const auto copy = [](const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& source) {
    for (size_t i = 0; i < to.size(); ++i) to[i].data().copy_(source[i].data());
  };
  copy(model.net->parameters(), from.net->parameters());
  copy(model.net->buffers(), from.net->buffers());
  std::stringstream state;
  torch::save(*from.optimizer, state);
  torch::load(*model.optimizer, state);
}

template <class Net, class Step>
void check(const std::function<Net()>& make_net, const std::function<Batch(int)>& make_batch,
           Step step) {
  std::optional<OneThread> one_thread;
  if (backend_rounds()) one_thread.emplace();  // small ops, done three times by the judge
  for (Optimizer kind : {Optimizer::Sgd, Optimizer::Adam}) {
    SCOPED_TRACE(kind == Optimizer::Sgd ? "SGD" : "Adam");
    Model<Net> eager(make_net, make_batch, kind), twin(make_net, make_batch, kind);
    const auto loss_with = [&](Model<Net>& model) {
      return [&](const at::Tensor& x, const at::Tensor& y) { return step(model.net, x, y); };
    };
    const auto compiled = tandem::compile(twin.net, loss_with(twin));
    expect_steps_like_eager(
        kSteps, [&] { take_over(twin, eager); },
        [&](int begin, int end) { return train<Net>(eager, loss_with(eager), begin, end); },
        [&](int begin, int end) { return train<Net>(twin, compiled, begin, end); }, expect_equal);
    EXPECT_EQ(compiled.stats().traces, 1) << compiled.report();
    EXPECT_EQ(compiled.stats().zero_fallbacks, 0);
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
}  // namespace tandem::test
