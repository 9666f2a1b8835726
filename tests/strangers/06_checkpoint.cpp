// Saves after an epoch, trains on, loads what was saved and trains the epoch again.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <iostream>
#include <sstream>

int main() {
  torch::manual_seed(5);
  torch::nn::Sequential net{torch::nn::Linear(6, 10), torch::nn::Sigmoid(),
                            torch::nn::Linear(10, 2)};
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.02));
  auto x = torch::randn({30, 6});
  auto y = torch::randint(0, 2, {30});
  auto loss_of = tandem::compile(net, [&](at::Tensor in, at::Tensor out) {
    return torch::nn::functional::cross_entropy(net->forward(in), out);
  });
  std::cout.precision(9);
  auto epoch = [&](const char* name) {
    for (int i = 0; i < 3; ++i) {
      auto loss = loss_of(x.narrow(0, 10 * i, 10), y.narrow(0, 10 * i, 10));
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::cout << name << ' ' << loss.item<float>() << '\n';
    }
  };

  epoch("first");
  std::stringstream model_file, optimizer_file;
  torch::save(net, model_file);
  torch::save(optimizer, optimizer_file);
  epoch("second");
  torch::load(net, model_file);
  torch::load(optimizer, optimizer_file);
  epoch("again");
}
