// A layer of experts, each of which sees only the words that a router sends to it.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

struct ExpertsImpl : torch::nn::Module {
  ExpertsImpl(int64_t width, int64_t count) : count(count) {
    router = register_module("router", torch::nn::Linear(width, count));
    for (int64_t i = 0; i < count; ++i) {
      experts->push_back(torch::nn::Sequential(torch::nn::Linear(width, 2 * width),
                                               torch::nn::GELU(),
                                               torch::nn::Linear(2 * width, width)));
    }
    register_module("experts", experts);
  }

  torch::Tensor forward(torch::Tensor words) {
    torch::Tensor chances = torch::softmax(router(words), -1);
    auto [best, chosen] = chances.max(-1);
    torch::Tensor out = torch::zeros_like(words);
    for (int64_t i = 0; i < count; ++i) {
      torch::Tensor rows = (chosen == i).nonzero().squeeze(1);
      torch::Tensor mine = words.index_select(0, rows);
      torch::Tensor answer = experts[i]->as<torch::nn::Sequential>()->forward(mine);
      out = out.index_add(0, rows, answer * best.index_select(0, rows).unsqueeze(1));
    }
    return words + out;
  }

  int64_t count;
  torch::nn::Linear router{nullptr};
  torch::nn::ModuleList experts;
};
TORCH_MODULE(Experts);

int main() {
  torch::manual_seed(1);
  Experts layer(8, 4);
  torch::nn::Linear head(8, 3);
  torch::optim::Adam adam(layer->parameters(), torch::optim::AdamOptions(1e-2).eps(1e-4));
  auto step =
      tandem::compile(std::tie(layer, head), [&](torch::Tensor words, torch::Tensor labels) {
        auto out = head(layer(words));
        return torch::nn::functional::cross_entropy(out, labels);
      });
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 8; ++i) {
      auto words = torch::randn({i == 7 ? 5 : 32, 8});
      auto labels = torch::randint(3, {words.size(0)});
      auto loss = step(words, labels);
      adam.zero_grad();
      loss.backward();
      adam.step();
      std::printf("%.9g\n", loss.item<double>());
    }
  }
}
