// A number that changes in each step, as an argument.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cmath>
#include <cstdio>

int main() {
  torch::manual_seed(18);
  torch::nn::Linear encode(6, 8), decode(4, 6);
  auto elbo = tandem::compile(std::tuple(encode, decode), [&](const at::Tensor& x, double beta) {
    const auto halves = encode->forward(x).chunk(2, 1);
    const at::Tensor z = halves[0] + torch::randn_like(halves[0]) * (0.5 * halves[1]).exp();
    const at::Tensor kl = -0.5 * (1 + halves[1] - halves[0].pow(2) - halves[1].exp()).sum();
    return torch::mse_loss(decode->forward(z), x, torch::Reduction::Sum) + beta * kl;
  });
  std::vector<at::Tensor> weights = encode->parameters();
  for (const at::Tensor& p : decode->parameters()) weights.push_back(p);
  torch::optim::Adam optimizer(weights, 1e-2);
  const at::Tensor x = torch::randn({25, 6});
  for (int step = 0; step < 24; ++step) {
    optimizer.zero_grad();
    at::Tensor loss = elbo(x, 1 - std::exp(-0.1 * step));
    loss.backward();
    optimizer.step();
    std::printf("%.9g\n", loss.item<double>());
  }
}
