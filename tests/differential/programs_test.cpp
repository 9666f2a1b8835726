/// Whole training programs: twenty steps through Tandem end with the same bits as twenty eager
/// steps, or where ruling 4 wants them.
#include "support/programs.h"

#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using MakeOptimizer = OptimizerPtr (*)(const Tensors& parameters);

/// Where bits are promised, twenty steps. What rounds grows from step to step: after twenty it is
/// luck which of two runs in float32 is nearer to float64.
int steps() { return backend_rounds() ? 3 : 20; }

OptimizerPtr make_sgd(const Tensors& parameters) {
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
}

OptimizerPtr make_adam(const Tensors& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-3));
}

struct Outcome {
  Tensors losses, parameters, gradients, buffers;
  at::Tensor generator_state;
};

/// Trains from the same seeds, eagerly or compiled.
Outcome train(const ProgramMaker& maker, MakeOptimizer make_optimizer, bool compiled) {
  torch::manual_seed(11);
  TrainingProgram program = maker.make(Scale::Small);
  std::vector<Tensors> batches;
  for (int i = 0; i < steps(); ++i) batches.push_back(program.batch());
  std::vector<OptimizerPtr> optimizers;
  for (const auto& part : program.parts) optimizers.push_back(make_optimizer(part->parameters()));
  Options options;
  options.modules = program.parts;
  auto function = tandem::compile<Tensors(Tensors)>(program.losses, options);

  torch::manual_seed(12);
  Outcome outcome;
  for (const Tensors& batch : batches) {
    Tensors losses = compiled ? training_step(function, batch, optimizers)
                              : training_step(program.losses, batch, optimizers);
    for (at::Tensor& loss : losses) outcome.losses.push_back(std::move(loss));
  }
  if (compiled) {
    const Stats stats = function.stats();
    EXPECT_EQ(stats.traces, 1) << function.report();
    EXPECT_EQ(stats.hits, steps() - 1);
    EXPECT_EQ(stats.eager_calls, 0);
    EXPECT_EQ(stats.zero_fallbacks, 0);
  }
  for (const auto& part : program.parts) {
    for (const at::Tensor& parameter : part->parameters()) {
      outcome.parameters.push_back(parameter.detach().clone());
      outcome.gradients.push_back(parameter.grad());
    }
    for (const at::Tensor& buffer : part->buffers()) outcome.buffers.push_back(buffer.clone());
  }
  outcome.generator_state = at::detail::getDefaultCPUGenerator().get_state();
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

void expect_to_train_like_eager(const ProgramMaker& maker, MakeOptimizer make_optimizer) {
  WideRun wide_run;
  Outcome eager;
  {
    const WideRun::Scope scope(wide_run);
    eager = train(maker, make_optimizer, false);
  }
  expect_same(eager, train(maker, make_optimizer, true));
}

class Programs : public ::testing::TestWithParam<ProgramMaker> {
  OneThread one_thread_;
};

TEST_P(Programs, TrainLikeEagerWithSgd) { expect_to_train_like_eager(GetParam(), make_sgd); }

TEST_P(Programs, TrainLikeEagerWithAdam) { expect_to_train_like_eager(GetParam(), make_adam); }

INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::ValuesIn(training_programs()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::testing
