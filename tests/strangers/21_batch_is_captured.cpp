// The function takes no argument: it reads the batch from variables that the loop assigns.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>
#include <vector>

int main() {
  torch::manual_seed(20);
  torch::nn::Linear net(3, 1);
  std::vector<at::Tensor> inputs, targets;
  for (int i = 0; i < 5; ++i) {
    inputs.push_back(torch::randn({6, 3}));
    targets.push_back(inputs.back().sum(1, true));
  }
  at::Tensor x, y;
  auto step = tandem::compile(net, [&] { return torch::mse_loss(net(x), y); });
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      x = inputs[i];
      y = targets[i];
      optimizer.zero_grad();
      auto loss = step();
      loss.backward();
      optimizer.step();
      std::printf("%.9g\n", loss.item<double>());
    }
  }
}
