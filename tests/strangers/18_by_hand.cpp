// No module and no optimizer: tensors that are variables of main, and an update that assigns them.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <iostream>

int main() {
  torch::manual_seed(17);
  torch::Tensor w = torch::randn({5, 3}).requires_grad_();
  torch::Tensor bias = torch::zeros(3).requires_grad_();
  auto loss_of = tandem::compile([&w, &bias](torch::Tensor x, torch::Tensor y) {
    return ((x.mm(w) + bias).softmax(1) - y).abs().sum() / x.size(0);
  });
  std::cout.precision(9);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 5; ++i) {
      torch::Tensor x = torch::randn({8, 5}), y = torch::eye(3).repeat({3, 1}).narrow(0, 0, 8);
      torch::Tensor loss = loss_of(x, y);
      loss.backward();
      w = (w - 0.1 * w.grad()).detach().requires_grad_();
      bias = (bias - 0.1 * bias.grad()).detach().requires_grad_();
      std::cout << loss.item<float>() << '\n';
    }
  }
}
