// The first epoch trains the head only.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

struct FineTuneImpl : torch::nn::Module {
  torch::nn::Sequential body{torch::nn::Linear(9, 18), torch::nn::ELU(), torch::nn::Linear(18, 18)};
  torch::nn::Linear head{18, 4};

  FineTuneImpl() {
    register_module("body", body);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) { return head(torch::elu(body->forward(x))); }
  void freeze(bool frozen) {
    for (auto& p : body->parameters()) p.requires_grad_(!frozen);
  }
};
TORCH_MODULE(FineTune);

int main() {
  torch::manual_seed(9);
  FineTune net;
  auto step = tandem::compile(
      net, [&](torch::Tensor x, torch::Tensor y) { return torch::multi_margin_loss(net(x), y); });
  auto x = torch::randn({20, 9});
  auto y = torch::randint(4, {20});
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->freeze(epoch == 0);
    std::vector<torch::Tensor> trained;
    for (auto& p : net->parameters())
      if (p.requires_grad()) trained.push_back(p);
    torch::optim::SGD optimizer(trained,
                                torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
    for (int i = 0; i < 5; ++i) {
      net->zero_grad();
      auto loss = step(x, y);
      loss.backward();
      optimizer.step();
      std::printf("epoch %d %.9g, body has %s\n", epoch, loss.item<double>(),
                  net->body->parameters()[0].grad().defined() ? "a gradient" : "none");
    }
  }
}
