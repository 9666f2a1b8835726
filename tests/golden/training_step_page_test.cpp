// The programs of docs/how-to/compile-your-training-step.md: what lies between `// [name]` and
// `// [end]` is shown there word for word (stage_pages_test.cpp compares), and runs here.

#include "support/temporary_folder.h"
#include "tandem/tandem.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace F = torch::nn::functional;

// [step-class]
class Trainer {
 public:
  explicit Trainer(torch::nn::Sequential net)
      : net_(std::move(net)), optimizer_(net_->parameters(), /*lr=*/0.1) {
    step_ = tandem::compile(net_, [this](const at::Tensor& x, const at::Tensor& y) {
      return F::cross_entropy(net_->forward(x), y) * weight_;
    });
  }
  Trainer(const Trainer&) = delete;  // the lambda holds `this`

  at::Tensor train(const at::Tensor& x, const at::Tensor& y) {
    optimizer_.zero_grad();
    at::Tensor loss = step_(x, y);
    loss.backward();
    optimizer_.step();
    return loss;
  }

 private:
  torch::nn::Sequential net_;
  torch::optim::SGD optimizer_;
  const double weight_ = 0.5;  // read when the step is traced: it must not change
  tandem::Compiled<at::Tensor(at::Tensor, at::Tensor)> step_;
};
// [end]

// [step-autocast]
struct Autocast {
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
// [end]

namespace tandem {
namespace {

struct Batch {
  at::Tensor x, y;
};

std::vector<Batch> make_batches(int count = 4) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back({torch::randn({6, 8}), torch::randint(3, {6})});
  }
  return batches;
}

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Dropout(0.1),
                               torch::nn::Linear(16, 3));
}

auto compile_step(torch::nn::Sequential net) {
  return tandem::compile(net, [net](const at::Tensor& x, const at::Tensor& y) mutable {
    return F::cross_entropy(net->forward(x), y);
  });
}

TEST(TrainingStepPage, OneLine) {
  const std::vector<Batch> batches = make_batches();
  auto net = make_net();
  torch::optim::Adam optimizer(net->parameters());
  // [step-one-line]
  auto step = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net->forward(x), y);
  });

  for (const auto& [x, y] : batches) {
    optimizer.zero_grad();
    at::Tensor loss = step(x, y);  // was: F::cross_entropy(net->forward(x), y)
    loss.backward();
    optimizer.step();
  }
  // [end]
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, AccumulateAndClip) {
  const std::vector<std::vector<Batch>> batches{make_batches(), make_batches()};
  auto net = make_net();
  auto step = compile_step(net);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  // [step-accumulate]
  for (const auto& micro_batches : batches) {
    optimizer.zero_grad();
    for (const auto& [x, y] : micro_batches) {
      (step(x, y) / static_cast<double>(micro_batches.size())).backward();
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
  }
  // [end]
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, Freeze) {
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  step(x, y).backward();
  // [step-freeze]
  for (at::Tensor& p : net[0]->parameters()) p.requires_grad_(false);
  step(x, y).backward();  // one more entry: without the gradients of the first layer
  for (at::Tensor& p : net[0]->parameters()) p.requires_grad_(true);
  step(x, y).backward();  // the first entry again
  // [end]
  EXPECT_EQ(step.stats().compiles, 2);
}

TEST(TrainingStepPage, Evaluate) {
  auto net = make_net();
  auto step = compile_step(net);
  const std::vector<Batch> validation = make_batches();
  step(validation[0].x, validation[0].y).backward();
  // [step-evaluate]
  net->eval();
  {
    torch::NoGradGuard no_grad;
    double sum = 0;
    for (const auto& [x, y] : validation) sum += step(x, y).item<double>();
    std::cout << "validation loss " << sum / static_cast<double>(validation.size()) << "\n";
  }
  net->train();
  // [end]
  EXPECT_EQ(step.stats().compiles, 2);
}

TEST(TrainingStepPage, SaveAndLoad) {
  const test::TemporaryFolder folder("training_step_page");
  const std::string path = (folder.path() / "net.pt").string();
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  const at::Tensor before = (net->eval(), step(x, y));
  // [step-save]
  torch::save(net, path);
  torch::load(net, path);  // writes into the parameters that exist: nothing is compiled again
  // [end]
  EXPECT_TRUE(step(x, y).equal(before));
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, MixedPrecision) {
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  for (int i = 0; i < 2; ++i) {
    // [step-autocast-use]
    at::Tensor loss;
    {
      Autocast autocast;  // around the call, or inside the function
      loss = step(x, y);
    }
    loss.backward();
    // [end]
  }
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, InAClass) {
  Trainer trainer(make_net());
  for (const auto& [x, y] : make_batches()) {
    EXPECT_TRUE(trainer.train(x, y).isfinite().item<bool>());
  }
}

TEST(TrainingStepPage, AverageOfTheWeights) {
  auto net = make_net();
  const auto [x, y] = make_batches()[0];
  // [step-average]
  auto average = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  auto predict = tandem::compile(torch::nn::Sequential(average));

  const auto follow = [&] {  // after each optimizer step
    torch::NoGradGuard no_grad;
    const auto now = net->parameters();
    auto averages = average->parameters();
    for (size_t i = 0; i < now.size(); ++i) averages[i].mul_(0.99).add_(now[i], 0.01);
  };
  // [end]
  average->eval();
  for (int i = 0; i < 3; ++i) {
    follow();
    predict(x);
  }
  EXPECT_EQ(predict.stats().compiles, 1);
}

TEST(TrainingStepPage, TwoNetsTwoLosses) {
  torch::nn::Linear generator(4, 8), critic(8, 1);
  torch::optim::Adam generator_optimizer(generator->parameters());
  torch::optim::Adam critic_optimizer(critic->parameters());
  const at::Tensor z = torch::randn({6, 4}), real = torch::randn({6, 8});
  // [step-two]
  auto losses =
      tandem::compile(std::tuple{generator, critic}, [&](const at::Tensor& z, const at::Tensor& x) {
        const at::Tensor fake = generator(z).tanh();
        const at::Tensor for_critic = critic(fake.detach()).mean() - critic(x).mean();
        const at::Tensor for_generator = -critic(fake).mean();
        return std::pair{for_critic, for_generator};
      });

  const auto [for_critic, for_generator] = losses(z, real);
  const auto parameters = generator->parameters();
  const auto gradients = torch::autograd::grad({for_generator}, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
  for_critic.backward();
  generator_optimizer.step();
  critic_optimizer.step();
  // [end]
  EXPECT_TRUE(critic->weight.grad().defined());
}

TEST(TrainingStepPage, PartOfANet) {
  torch::nn::Linear embed(8, 8), head(8, 3);
  auto middle = torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::GELU());
  const auto [x, y] = make_batches()[0];
  // [step-part]
  auto block = tandem::compile(middle);

  at::Tensor h = torch::relu(embed(x));  // eager
  h = block(h) + h;                      // compiled
  F::cross_entropy(head(h), y).backward();
  // [end]
  EXPECT_TRUE(embed->weight.grad().defined());
}

TEST(TrainingStepPage, LookAtIt) {
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  step(x, y);
  // [step-look]
  for (const tandem::Miss& miss : step.stats().misses) std::cout << miss << "\n";
  std::cout << step.explain(x, y);  // what a call with these arguments would do
  // [end]
  EXPECT_EQ(step.stats().misses.size(), 1);
}

}  // namespace
}  // namespace tandem
