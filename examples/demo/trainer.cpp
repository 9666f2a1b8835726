#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace demo {
namespace {

using bench::Side;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// All trainings begin with the same weights.
Transformer make_net(const Shape& shape) {
  torch::manual_seed(42);
  return Transformer(shape);
}

}  // namespace

at::Tensor loss_of(Transformer net, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net->forward(batch.characters).flatten(0, 1),
                                              batch.next.flatten());
}

uint64_t seed_of(int64_t step) { return static_cast<uint64_t>(1000 + step); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Trainer::Trainer(std::string name, Side side, Transformer net)
    : name_(std::move(name)),
      side_(side),
      net_(net),
      loss_([net](const at::Tensor& characters, const at::Tensor& next) {
        return loss_of(net, {characters, next});
      }),
      optimizer_(net->parameters(), torch::optim::AdamWOptions(2e-3).betas({0.9, 0.99})) {}

Trainer Trainer::eager(const Shape& shape) { return {"eager", Side::Eager, make_net(shape)}; }

Trainer Trainer::compiled(Side side, const Shape& shape, const tandem::Options& options) {
  Trainer trainer(side == Side::Fast ? "fast" : "tandem", side, make_net(shape));
  // All that differs from the eager training.
  trainer.compiled_ = tandem::compile(trainer.net_, trainer.loss_, options);
  trainer.loss_ = trainer.compiled_;
  return trainer;
}

void Trainer::train(const Batch& batch, int64_t step, bench::MemoryMeter& meter) {
  torch::manual_seed(seed_of(step));
  meter.set_active(side_);
  const auto start = Clock::now();
  at::Tensor loss = loss_(batch.characters, batch.next);
  if (step == 0) first_call_seconds_ = seconds_since(start);
  optimizer_.zero_grad();
  loss.backward();
  optimizer_.step();
  step_seconds_.push_back(seconds_since(start));
  losses_.push_back(loss.item<float>());
  loss.reset();
  meter.set_active(Side::Neither);
}

double Trainer::median_seconds() const { return median(step_seconds_); }

double Trainer::mean_of_last_tenth() const {
  const auto count = static_cast<int64_t>(std::max<size_t>(1, losses_.size() / 10));
  return std::accumulate(losses_.end() - count, losses_.end(), 0.0) / static_cast<double>(count);
}

}  // namespace demo
