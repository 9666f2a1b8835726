// Between epochs every weight gets new memory, with the smallest numbers set to zero.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <iostream>

using namespace torch;

int main() {
  manual_seed(10);
  auto net = std::make_shared<nn::Conv1dImpl>(nn::Conv1dOptions(2, 6, 3).padding(1));
  auto last = std::make_shared<nn::LinearImpl>(6, 1);
  auto step = tandem::compile(std::make_tuple(net, last), [net, last](Tensor x, Tensor y) {
    Tensor features = net->forward(x).relu().mean(-1);
    return nn::functional::mse_loss(last->forward(features), y);
  });
  std::vector<Tensor> all = net->parameters();
  for (Tensor& p : last->parameters()) all.push_back(p);
  optim::SGD optimizer(all, 0.2);
  Tensor x = torch::randn({16, 2, 8}), y = x.amax({1, 2}).unsqueeze(1);
  std::cout.precision(9);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 4; ++i) {
      optimizer.zero_grad();
      Tensor loss = step(x, y);
      loss.backward();
      optimizer.step();
      std::cout << loss.item<double>() << std::endl;
    }
    for (Tensor& p : all) {
      Tensor small = p.abs() < 0.1;
      p.set_data(p.data().masked_fill(small, 0));
    }
  }
}
