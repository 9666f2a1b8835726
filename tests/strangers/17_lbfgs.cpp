// An optimizer that calls the step itself, several times.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(16);
  torch::Tensor points = torch::randn({50, 2}), values = (points * points).sum(1) + 0.3;
  torch::Tensor a = torch::rand({2, 2}, torch::requires_grad());
  torch::Tensor b = torch::zeros({2}, torch::requires_grad());
  torch::Tensor c = torch::zeros({}, torch::requires_grad());
  auto error = tandem::compile([&] {
    torch::Tensor form = torch::einsum("ni,ij,nj->n", {points, a, points});
    return (form + points.matmul(b) + c - values).pow(2).mean();
  });
  torch::optim::LBFGS optimizer({a, b, c}, torch::optim::LBFGSOptions(0.5).max_iter(5));
  for (int round = 0; round < 4; ++round) {
    torch::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      torch::Tensor now = error();
      now.backward();
      return now;
    });
    std::printf("%.7g\n", loss.item<double>());
  }
}
