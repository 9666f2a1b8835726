// A class that owns network, optimizer and compiled function, and compiles in its constructor.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <functional>
#include <iostream>

struct Batch {
  at::Tensor input, target, weight;
};
TANDEM_STRUCT(Batch, input, target, weight)

class Trainer : public torch::nn::Module {
 public:
  explicit Trainer(double rate)
      : first_(register_module("first", torch::nn::Linear(4, 11))),
        norm_(register_module("norm", torch::nn::GroupNorm(torch::nn::GroupNormOptions(1, 11)))),
        second_(register_module("second", torch::nn::Linear(11, 2))),
        optimizer_(parameters(), torch::optim::SGDOptions(rate)),
        step_(tandem::compile(*this, [this](const Batch& batch) { return loss(batch); })) {}

  double train_on(const Batch& batch) {
    optimizer_.zero_grad();
    at::Tensor value = step_(batch);
    value.backward();
    optimizer_.step();
    return value.item<double>();
  }

 private:
  at::Tensor loss(const Batch& batch) {
    const at::Tensor out = second_(torch::celu(norm_(first_(batch.input))));
    const at::Tensor each = torch::mse_loss(out, batch.target, torch::Reduction::None).mean(1);
    return (each * batch.weight).sum() / batch.weight.sum();
  }

  torch::nn::Linear first_;
  torch::nn::GroupNorm norm_;
  torch::nn::Linear second_;
  torch::optim::SGD optimizer_;
  std::function<at::Tensor(const Batch&)> step_;
};

int main() {
  torch::manual_seed(14);
  Trainer trainer(0.3);
  std::cout.precision(9);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int64_t rows : {12, 12, 7}) {
      Batch batch{torch::randn({rows, 4}), torch::randn({rows, 2}), torch::rand(rows)};
      std::cout << trainer.train_on(batch) << "\n";
    }
  }
}
