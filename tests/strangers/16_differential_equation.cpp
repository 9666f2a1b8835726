// Learns u with u'' = -u: the loss has derivatives of the network with respect to its input.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(15);
  torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kDouble));
  torch::nn::Sequential u(torch::nn::Linear(1, 20), torch::nn::Tanh(), torch::nn::Linear(20, 20),
                          torch::nn::Tanh(), torch::nn::Linear(20, 1));
  auto residual = tandem::compile(u, [&](const at::Tensor& points) {
    at::Tensor t = points.detach().requires_grad_();
    at::Tensor y = u->forward(t);
    at::Tensor dy = torch::autograd::grad({y.sum()}, {t}, {}, true, true)[0];
    at::Tensor ddy = torch::autograd::grad({dy.sum()}, {t}, {}, true, true)[0];
    at::Tensor start = u->forward(torch::zeros({1, 1}));
    return (ddy + y).square().mean() + (start - 1).square().sum();
  });
  torch::optim::Adam optimizer(u->parameters(), 1e-3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 6; ++i) {
      at::Tensor points = torch::rand({i == 5 ? 9 : 32, 1}) * 3;
      optimizer.zero_grad();
      at::Tensor loss = residual(points);
      loss.backward();
      optimizer.step();
      std::printf("%.12g\n", loss.item<double>());
    }
  }
}
