// No DataLoader: a shuffled order, chunks, and a rest.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

using torch::Tensor;

static Tensor loss_fn(torch::nn::Linear& a, torch::nn::Linear& b, const Tensor& x,
                      const Tensor& y) {
  Tensor h = torch::gelu(a(x));
  h = h + torch::ones({h.size(0), 1});
  return torch::smooth_l1_loss(b(h).flatten(), y);
}

int main() {
  torch::manual_seed(3);
  torch::nn::Linear a(5, 12), b(12, 1);
  auto params = a->parameters();
  for (auto& p : b->parameters()) params.push_back(p);
  torch::optim::RMSprop opt(params, torch::optim::RMSpropOptions(0.005));
  auto step = tandem::compile(
      std::tuple{a, b}, [&](const Tensor& x, const Tensor& y) { return loss_fn(a, b, x, y); });
  Tensor X = torch::rand({70, 5}), Y = (X * X).sum(1);
  for (int epoch = 0; epoch != 2; ++epoch) {
    Tensor order = torch::randperm(70);
    for (const Tensor& part : order.split(32)) {
      Tensor loss = step(X.index_select(0, part), Y.index_select(0, part));
      opt.zero_grad();
      loss.backward();
      opt.step();
      std::printf("%d rows: %.9g\n", static_cast<int>(part.size(0)), loss.item<double>());
    }
  }
}
