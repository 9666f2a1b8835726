#include "rounding_check.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace demo {
namespace {

double distance(const at::Tensor& a, const at::Tensor& b) {
  const double largest = (a - b).abs().max().item<double>();
  // A NaN compares with nothing, and must not pass.
  return std::isnan(largest) ? std::numeric_limits<double>::infinity() : largest;
}

void copy_all(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

}  // namespace

RoundingCheck::RoundingCheck(const Shape& shape) : narrow_(shape), wide_(shape) {
  wide_->to(torch::kDouble);
}

std::vector<at::Tensor> RoundingCheck::run(Transformer net, const Trainer& trainer,
                                           const Batch& batch, int64_t step) const {
  {
    const torch::NoGradGuard no_grad;
    copy_all(trainer.net()->parameters(), net->parameters());
    copy_all(trainer.net()->buffers(), net->buffers());
  }
  torch::manual_seed(seed_of(step));
  net->zero_grad();
  const at::Tensor loss = loss_of(net, batch);
  loss.backward();
  std::vector<at::Tensor> found{loss.detach().to(torch::kDouble)};
  for (const at::Tensor& parameter : net->parameters())
    found.push_back(parameter.grad().to(torch::kDouble));
  return found;
}

void RoundingCheck::expect(const Trainer& trainer, const Batch& batch, int64_t step) {
  in_narrow_ = run(narrow_, trainer, batch, step);
  in_wide_ = run(wide_, trainer, batch, step);
}

void RoundingCheck::compare(const Trainer& trainer) {
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  const auto parameters = trainer.net()->named_parameters();
  const auto look = [&](const std::string& what, size_t i, const at::Tensor& found) {
    const double allowed = 2 * distance(in_narrow_[i], in_wide_[i]) +
                           16 * kEps * in_wide_[i].abs().max().item<double>();
    const double used = distance(found, in_wide_[i]) / allowed;
    if (used <= worst_) return;
    worst_ = used;
    worst_of_ = fmt::format("{}, step {}", what, trainer.losses().size() - 1);
  };
  look("loss", 0, torch::tensor(trainer.losses().back(), torch::kDouble));
  for (size_t i = 0; i < parameters.size(); ++i) {
    look("gradient of " + parameters[i].key(), i + 1,
         parameters[i].value().grad().to(torch::kDouble));
  }
  ++steps_;
}

}  // namespace demo
