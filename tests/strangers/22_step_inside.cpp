// Hopes that the whole step can be compiled.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(21);
  torch::nn::Linear net(3, 2);
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  auto step = tandem::compile(net, [&](at::Tensor x, at::Tensor y) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  for (int i = 0; i < 6; ++i)
    std::printf("%.9g\n", step(torch::randn({4, 3}), torch::randint(2, {4})).item<double>());
}
