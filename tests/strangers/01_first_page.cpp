// The snippet of the first page, with data.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 3));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  at::Tensor x = torch::randn({64, 8});
  at::Tensor y = torch::randint(3, {64});
  auto step = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    return torch::nn::functional::cross_entropy(net->forward(x), y);
  });
  for (int i = 0; i < 10; ++i) {
    at::Tensor loss = step(x, y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::printf("%.9g\n", loss.item<double>());
  }
}
