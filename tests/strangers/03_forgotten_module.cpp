// Nobody has told Tandem about the module, and eval() changes what it does.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(2);
  auto net = torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::BatchNorm1d(16),
                                   torch::nn::ReLU(), torch::nn::Linear(16, 1));
  auto mse = tandem::compile([net](at::Tensor x, at::Tensor y) mutable {
    return torch::mse_loss(net->forward(x).squeeze(1), y);
  });
  torch::optim::Adam opt(net->parameters(), 1e-2);
  auto x = torch::randn({40, 4}), y = x.sum(1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->train();
    for (auto i = 0; i < 4; ++i) {
      opt.zero_grad();
      auto loss = mse(x.slice(0, 10 * i, 10 * i + 10), y.slice(0, 10 * i, 10 * i + 10));
      loss.backward();
      opt.step();
      std::printf("train %.9g\n", loss.item<double>());
    }
    net->eval();
    std::printf("valid %.9g\n", mse(x.slice(0, 0, 10), y.slice(0, 0, 10)).item<double>());
  }
}
