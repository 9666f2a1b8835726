// An exponential average of the weights in a second module, which is used for validation.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>
#include <memory>

class Regressor : public torch::nn::Module {
 public:
  Regressor() {
    hidden_ = register_module("hidden", torch::nn::Linear(3, 24));
    norm_ = register_module("norm", torch::nn::BatchNorm1d(24));
    out_ = register_module("out", torch::nn::Linear(24, 1));
  }
  at::Tensor forward(const at::Tensor& x) {
    return out_->forward(norm_->forward(hidden_->forward(x)).tanh()).squeeze(-1);
  }

 private:
  torch::nn::Linear hidden_{nullptr}, out_{nullptr};
  torch::nn::BatchNorm1d norm_{nullptr};
};

void update(Regressor& average, const Regressor& model, double decay) {
  torch::NoGradGuard guard;
  auto to = average.parameters();
  auto from = model.parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].mul_(decay).add_(from[i], 1 - decay);
  auto buffers = average.buffers();
  auto source = model.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(source[i]);
}

int main() {
  torch::manual_seed(6);
  auto model = std::make_shared<Regressor>();
  auto average = std::make_shared<Regressor>();
  update(*average, *model, 0);
  average->eval();

  auto train = tandem::compile(model, [model](const at::Tensor& x, const at::Tensor& y) {
    return (model->forward(x) - y).square().mean();
  });
  auto validate = tandem::compile(average, [average](const at::Tensor& x, const at::Tensor& y) {
    return (average->forward(x) - y).abs().mean();
  });
  torch::optim::SGD sgd(model->parameters(),
                        torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
  const at::Tensor x = torch::randn({48, 3}), y = x.prod(1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int64_t at = 0; at < 48; at += 12) {
      sgd.zero_grad();
      const at::Tensor loss = train(x.slice(0, at, at + 12), y.slice(0, at, at + 12));
      loss.backward();
      sgd.step();
      update(*average, *model, 0.9);
    }
    torch::NoGradGuard guard;
    std::printf("epoch %d: %.9g\n", epoch, validate(x, y).item<double>());
  }
}
