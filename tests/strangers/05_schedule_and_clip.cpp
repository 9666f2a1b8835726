// Two groups of parameters, a learning rate that falls, and gradients that are clipped.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        up(register_module("up", nn::Linear(width, 2 * width))),
        down(register_module("down", nn::Linear(2 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::silu(up(norm(x)))); }
  nn::LayerNorm norm;
  nn::Linear up, down;
};
TORCH_MODULE(Block);

int main() {
  torch::manual_seed(4);
  nn::Sequential model(Block(8), Block(8), nn::Linear(8, 1));
  std::vector<torch::Tensor> decayed, others;
  for (const auto& p : model->named_parameters())
    (p.value().dim() > 1 ? decayed : others).push_back(p.value());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions(3e-3).weight_decay(0.1)));
  groups.emplace_back(others, std::make_unique<torch::optim::AdamWOptions>(
                                  torch::optim::AdamWOptions(3e-3).weight_decay(0.0)));
  torch::optim::AdamW optimizer(groups);
  torch::optim::StepLR scheduler(optimizer, 3, 0.5);

  auto criterion =
      tandem::compile(model, [model](torch::Tensor input, torch::Tensor wanted) mutable {
        return nn::functional::huber_loss(model->forward(input), wanted);
      });
  torch::Tensor input = torch::randn({24, 8}), wanted = input.sin().sum(1, true);
  for (int iteration = 0; iteration < 12; ++iteration) {
    optimizer.zero_grad();
    torch::Tensor loss = criterion(input, wanted);
    loss.backward();
    const double norm = nn::utils::clip_grad_norm_(model->parameters(), 0.5);
    optimizer.step();
    scheduler.step();
    std::printf("loss %.9g norm %.9g\n", loss.item<double>(), norm);
  }
}
