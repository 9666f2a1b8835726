// Stochastic depth, decided by the host.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>
#include <random>

int main() {
  torch::manual_seed(22);
  std::mt19937 coin(0);
  torch::nn::Linear in(4, 8), block(8, 8), out(8, 1);
  auto step = tandem::compile(std::tuple{in, block, out}, [&](at::Tensor x, at::Tensor y) {
    at::Tensor h = in(x).tanh();
    if (coin() % 2) h = h + block(h).tanh();
    return torch::mse_loss(out(h).squeeze(1), y);
  });
  std::vector<at::Tensor> all;
  for (const torch::nn::Linear& part : {in, block, out})
    for (const at::Tensor& p : part->parameters()) all.push_back(p);
  torch::optim::SGD optimizer(all, 0.1);
  for (int i = 0; i < 16; ++i) {
    at::Tensor x = torch::randn({12, 4});
    at::Tensor loss = step(x, x.sum(1));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::printf("%.9g\n", loss.item<double>());
  }
}
