/// Whole training programs: twenty steps through Tandem end with the same bits as twenty eager
/// steps, or within the bounds of docs/reference/differences.md.
#include "support/programs.h"

#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/steps_like_eager.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>
#include <string>

namespace tandem::test {
namespace {

using Tensors = std::vector<at::Tensor>;
using MakeOptimizer = OptimizerPtr (*)(const Tensors& parameters);

constexpr int kSteps = 20;

OptimizerPtr make_sgd(const Tensors& parameters) {
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
}

OptimizerPtr make_adam(const Tensors& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters,
                                              torch::optim::AdamOptions(1e-3).eps(adam_eps()));
}

/// A program from the same seed as any other of its kind, with its optimizers and batches.
struct Training {
  Training(const ProgramMaker& maker, MakeOptimizer make_optimizer) {
    torch::manual_seed(11);
    program = maker.make(Scale::Small);
    for (int i = 0; i < kSteps; ++i) batches.push_back(program.batch());
    for (const auto& part : program.parts) {
      optimizers.push_back(make_optimizer(part->parameters()));
      for (const at::Tensor& parameter : part->parameters()) parameters.push_back(parameter);
      for (const at::Tensor& buffer : part->buffers()) buffers.push_back(buffer);
    }
  }

  TrainingProgram program;
  std::vector<Tensors> batches;
  std::vector<OptimizerPtr> optimizers;
  Tensors parameters, buffers;
};

using Losses = std::function<Tensors(const Tensors&)>;

auto compiled_losses(const Training& training) {
  Options options;
  options.modules = training.program.parts;
  return tandem::compile<Tensors(Tensors)>(training.program.losses, options);
}

void expect_one_entry(const Stats& stats, const std::string& report) {
  EXPECT_EQ(stats.traces, 1) << report;
  EXPECT_EQ(stats.hits, kSteps - 1);
  EXPECT_EQ(stats.eager_calls, 0);
  EXPECT_EQ(stats.zero_fallbacks, 0);
}

/// What a step leaves behind.
struct Outcome {
  Tensors losses, parameters, gradients, buffers;
  at::Tensor generator_state;
};

void keep_state(Outcome& outcome, const Training& training) {
  for (const at::Tensor& parameter : training.parameters) {
    outcome.parameters.push_back(parameter.detach().clone());
    outcome.gradients.push_back(parameter.grad());
  }
  for (const at::Tensor& buffer : training.buffers) outcome.buffers.push_back(buffer.clone());
  outcome.generator_state = at::detail::getDefaultCPUGenerator().get_state();
}

Outcome train(Training& training, const Losses& losses, int begin, int end) {
  torch::manual_seed(12 + begin);
  Outcome outcome;
  for (int i = begin; i < end; ++i) {
    const Tensors& batch = training.batches[static_cast<size_t>(i)];
    for (at::Tensor& loss : training_step(losses, batch, training.optimizers))
      outcome.losses.push_back(std::move(loss));
  }
  keep_state(outcome, training);
  return outcome;
}

void expect_same(const Tensors& eager, const Tensors& compiled, const char* what) {
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_TRUE(same_bits(eager[i], compiled[i])) << what << " " << i;
  }
}

void expect_same(const Outcome& eager, const Outcome& compiled) {
  expect_same(eager.losses, compiled.losses, "loss");
  expect_same(eager.parameters, compiled.parameters, "parameter");
  expect_same(eager.gradients, compiled.gradients, "gradient");
  expect_same(eager.buffers, compiled.buffers, "buffer");
  EXPECT_TRUE(same_bits(eager.generator_state, compiled.generator_state)) << "random stream";
}

void take_over(Training& training, const Training& from) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < training.parameters.size(); ++i)
    training.parameters[i].copy_(from.parameters[i]);
  for (size_t i = 0; i < training.buffers.size(); ++i) training.buffers[i].copy_(from.buffers[i]);
  for (size_t i = 0; i < training.optimizers.size(); ++i) {
    std::stringstream state;
    torch::save(*from.optimizers[i], state);
    torch::load(*training.optimizers[i], state);
  }
}

void expect_to_train_like_eager(const ProgramMaker& maker, MakeOptimizer make_optimizer) {
  Training eager(maker, make_optimizer), twin(maker, make_optimizer);
  const auto compiled = compiled_losses(twin);
  expect_steps_like_eager(
      kSteps, [&] { take_over(twin, eager); },
      [&](int begin, int end) { return train(eager, eager.program.losses, begin, end); },
      [&](int begin, int end) { return train(twin, compiled, begin, end); },
      [](const Outcome& expected, const Outcome& found) { expect_same(expected, found); });
  expect_one_entry(compiled.stats(), compiled.report());
}

class Programs : public ::testing::TestWithParam<ProgramMaker> {
  OneThread one_thread_;
};

TEST_P(Programs, TrainLikeEagerWithSgd) { expect_to_train_like_eager(GetParam(), make_sgd); }

TEST_P(Programs, TrainLikeEagerWithAdam) { expect_to_train_like_eager(GetParam(), make_adam); }

INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::ValuesIn(training_programs()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::test
