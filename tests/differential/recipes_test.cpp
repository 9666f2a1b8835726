/// What training programs do between the steps: gradients gathered, clipped and written by hand,
/// optimizers, schedules, precision. Twenty steps each, bit for bit as in eager.
#include "support/models.h"
#include "support/twins.h"

#include <ATen/autocast_mode.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using Parameters = std::vector<Tensor>;

constexpr int kSteps = 20;

struct Batch {
  Tensor x, y;
};

Batch make_batch(int64_t rows = 6) { return {torch::randn({rows, 5}), torch::randint(3, {rows})}; }

Mlp make_net() { return Mlp(5, 8, 3, 0.2); }

/// The loss of a classifier, eager or compiled.
auto loss_function(Twin& twin, Mlp net) {
  return twin.compile(net, [net](const Tensor& x, const Tensor& y) mutable {
    return F::cross_entropy(net->forward(x), y);
  });
}

TEST(Recipes, GradientAccumulationOverMicroBatches) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      for (int micro = 0; micro < 3; ++micro) {
        const auto [x, y] = make_batch();
        const Tensor loss = step(x, y) / 3;
        loss.backward();
        twin.record("loss", loss);
      }
      optimizer->step();
    }
    twin.record_state(*net);
    step.expect_one_compile();
  });
}

// All losses alive at once, one backward for their sum.
TEST(Recipes, LossesOfSeveralMicroBatchesSummed) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x1, y1] = make_batch();
      const auto [x2, y2] = make_batch();
      const Tensor loss = step(x1, y1) + step(x2, y2);
      loss.backward();
      optimizer->step();
      twin.record("loss", loss);
    }
    twin.record_state(*net);
    step.expect_one_compile();
  });
}

TEST(Recipes, ClippingByNormAndByValue) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      if (i % 2 == 0) {
        twin.record("norm",
                    std::to_string(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1)));
      } else {
        torch::nn::utils::clip_grad_value_(net->parameters(), 0.01);
      }
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

TEST(Recipes, ZeroGradThatKeepsOrDropsTheGradients) {
  for (bool set_to_none : {true, false}) {
    SCOPED_TRACE(set_to_none ? "set to none" : "set to zero");
    expect_training_agrees([&](Twin& twin) {
      Mlp net = make_net();
      auto step = loss_function(twin, net);
      auto optimizer = twin.optimizer(net->parameters());
      for (int i = 0; i < kSteps; ++i) {
        optimizer->zero_grad(set_to_none);
        const auto [x, y] = make_batch();
        step(x, y).backward();
        optimizer->step();
      }
      twin.record_state(*net);
      net->zero_grad(set_to_none);
      twin.record_state(*net);
      step.expect_one_compile();
    });
  }
}

TEST(Recipes, GradientsWrittenByHand) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      const auto [x, y] = make_batch();
      for (Tensor& p : net->parameters()) p.mutable_grad() = p.detach() * 0.01;  // weight decay
      step(x, y).backward();
      for (Tensor& p : net->parameters()) p.mutable_grad().add_(torch::randn_like(p), 1e-3);
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

// No .grad() at all: gradients from torch::autograd::grad, parameters written under no_grad.
TEST(Recipes, StepWrittenByHand) {
  expect_twins_agree([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    for (int i = 0; i < kSteps; ++i) {
      const auto [x, y] = make_batch();
      Parameters parameters = net->parameters();
      const auto gradients = torch::autograd::grad({step(x, y)}, parameters);
      torch::NoGradGuard guard;
      for (size_t p = 0; p < parameters.size(); ++p) parameters[p].sub_(gradients[p], 0.1);
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

TEST(Recipes, LearningRateSchedules) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    torch::optim::StepLR steps(*optimizer, 4, 0.5);
    torch::optim::ReduceLROnPlateauScheduler plateau(
        *optimizer, torch::optim::ReduceLROnPlateauScheduler::min, 0.5f, /*patience=*/1);
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      const Tensor loss = step(x, y);
      loss.backward();
      optimizer->step();
      steps.step();
      plateau.step(loss.item<float>());
      twin.record("rate", std::to_string(optimizer->param_groups()[0].options().get_lr()));
    }
    twin.record_state(*net);
    step.expect_one_compile();  // the rate is no input of the compiled function
  });
}

TEST(Recipes, TwoOptimizersForTwoPartsOfOneNet) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto one = twin.optimizer(net->first->parameters());
    torch::optim::RMSprop other(net->second->parameters(), torch::optim::RMSpropOptions(1e-3));
    for (int i = 0; i < kSteps; ++i) {
      net->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      one->step();
      if (i % 2 == 0) other.step();
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

// Two results, two backwards through one call: each loss moves only its own net.
TEST(Recipes, TwoLossesOfOneCall) {
  expect_training_agrees([](Twin& twin) {
    torch::nn::Linear left(5, 4), right(5, 4);
    auto both = twin.compile(std::tuple{left, right}, [=](const Tensor& x) mutable {
      const Tensor a = left(x).tanh(), b = right(x).tanh();
      return std::pair{(a - b.detach()).square().mean(), (b * a.detach()).mean()};
    });
    auto left_optimizer = twin.optimizer(left->parameters());
    auto right_optimizer = twin.optimizer(right->parameters());
    for (int i = 0; i < kSteps; ++i) {
      left_optimizer->zero_grad();
      right_optimizer->zero_grad();
      const auto [first, second] = both(torch::randn({6, 5}));
      first.backward({}, /*retain_graph=*/true);
      twin.record_state(*right);  // nothing has reached it yet
      second.backward();
      left_optimizer->step();
      right_optimizer->step();
      twin.record_state(*left);
      twin.record_state(*right);
    }
    both.expect_one_compile();
  });
}

TEST(Recipes, ParameterGroupAddedLater) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->second->parameters());
    for (int i = 0; i < kSteps; ++i) {
      if (i == 7) {
        optimizer->add_param_group(torch::optim::OptimizerParamGroup(net->first->parameters()));
      }
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

// Two sizes, one entry, however often they alternate.
TEST(Recipes, SmallerBatchAtTheEndOfEachEpoch) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch(i % 5 == 4 ? 2 : 6);
      step(x, y).backward();
      optimizer->step();
    }
    twin.record_state(*net);
    step.expect_one_compile();
    if (twin.is_compiled()) EXPECT_EQ(step.handle.stats().traces, 2);
  });
}

/// Autocast for a scope, as programs write it in C++.
class Autocast {
 public:
  Autocast() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(Recipes, AutocastAroundTheCall) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      Tensor loss;
      {
        Autocast autocast;
        loss = step(x, y);
      }
      twin.record("loss", loss);
      loss.backward();
      optimizer->step();
    }
    twin.record_state(*net);
    step.expect_one_compile();
  });
}

TEST(Recipes, AutocastInsideTheFunction) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = twin.compile(net, [net](const Tensor& x, const Tensor& y) mutable {
      Tensor logits;
      {
        Autocast autocast;
        logits = net->forward(x);
      }
      return F::cross_entropy(logits.to(at::kFloat), y);
    });
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      const Tensor loss = step(x, y);
      twin.record("loss", loss);
      loss.backward();
      optimizer->step();
    }
    twin.record_state(*net);
    step.expect_one_compile();
  });
}

TEST(Recipes, LossScaledUpAndGradientsScaledDown) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      (step(x, y) * 1024).backward();
      for (Tensor& p : net->parameters()) p.mutable_grad().div_(1024);
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

}  // namespace
}  // namespace tandem::test
