#pragma once

#include "corpus.h"
#include "memory_meter.h"  // of benchmarks/
#include "tandem/tandem.h"
#include "transformer.h"

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace demo {

using LossFn = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

/// What is trained: the cross entropy of the next characters.
at::Tensor loss_of(Transformer net, const Batch& batch);

/// The seed of what a step draws, the same for all trainings.
uint64_t seed_of(int64_t step);

/// One of the trainings that go side by side.
class Trainer {
 public:
  /// Plain libtorch.
  static Trainer eager(const Shape& shape);
  /// The same training with its loss compiled. `side`: Tandem, or Fast.
  static Trainer compiled(bench::Side side, const Shape& shape, const tandem::Options& options);

  const std::string& name() const { return name_; }
  Transformer net() const { return net_; }
  /// One per step.
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<double>& step_seconds() const { return step_seconds_; }
  double first_call_seconds() const { return first_call_seconds_; }
  bench::Side side() const { return side_; }
  /// Of the compiled function; empty for the eager training.
  const tandem::Compiled<at::Tensor(at::Tensor, at::Tensor)>& function() const { return compiled_; }

  /// Forward, backward and optimizer on the batch; counts time and bytes.
  void train(const Batch& batch, int64_t step, bench::MemoryMeter& meter);

  double median_seconds() const;
  double mean_of_last_tenth() const;

 private:
  Trainer(std::string name, bench::Side side, Transformer net);

  std::string name_;
  bench::Side side_;
  Transformer net_;
  LossFn loss_;
  tandem::Compiled<at::Tensor(at::Tensor, at::Tensor)> compiled_{};
  torch::optim::AdamW optimizer_;
  std::vector<double> losses_{}, step_seconds_{};
  double first_call_seconds_ = 0;
};

double median(std::vector<double> values);

}  // namespace demo
