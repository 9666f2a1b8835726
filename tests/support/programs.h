#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// Whole training programs of the kinds that people write, on synthetic data.
///
/// programs.cpp needs libtorch and models.h only, neither Tandem nor GoogleTest: tests and
/// benchmarks compile it as it is.
namespace tandem::test {

/// Small: milliseconds per step, for tests. Full: sizes at which the kernels dominate, for
/// measurements.
enum class Scale { Small, Full };

/// A net, its data and its losses. Parameters and batches are drawn from the default generator.
struct TrainingProgram {
  std::string name;
  /// Each part has an optimizer of its own; most programs have one.
  std::vector<std::shared_ptr<torch::nn::Module>> parts;
  /// One loss per part. The function to compile: it closes over the parts.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> losses;
  std::function<std::vector<at::Tensor>()> batch;
};

struct ProgramMaker {
  const char* name;
  TrainingProgram (*make)(Scale);
};

/// All of them: resnet18, gpt, lstm, gru, autoencoder, recommender, gan, sine, custom_function,
/// attention, transformer.
std::span<const ProgramMaker> training_programs();

using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;

/// One step: `losses` is the program's own function or a compiled form of it. Loss i is
/// differentiated by itself, and what it adds to the parts after i is thrown away. Returns the
/// losses, detached.
std::vector<at::Tensor> training_step(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& losses,
    const std::vector<at::Tensor>& batch, std::vector<OptimizerPtr>& optimizers);

}  // namespace tandem::test
