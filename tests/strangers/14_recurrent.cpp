// Carries the state of an LSTM from piece to piece of a sequence; the last piece is shorter.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>
#include <tuple>

using State = std::tuple<torch::Tensor, torch::Tensor>;

struct Tagger : torch::nn::Module {
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(20, 8))};
  torch::nn::LSTM lstm{
      register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 10).num_layers(2)))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(10, 20))};

  std::tuple<torch::Tensor, State> forward(torch::Tensor tokens, State state) {
    auto [hidden, next] = lstm->forward(embedding->forward(tokens), state);
    return {out->forward(hidden), next};
  }
};

int main() {
  torch::manual_seed(13);
  auto model = std::make_shared<Tagger>();
  auto step =
      tandem::compile(model, [model](torch::Tensor tokens, torch::Tensor wanted, State state) {
        auto [scores, next] = model->forward(tokens, state);
        auto loss = torch::nn::functional::cross_entropy(scores.flatten(0, 1), wanted.flatten());
        return std::tuple<torch::Tensor, State>(loss, next);
      });
  torch::optim::Adam optimizer(model->parameters(), 5e-3);
  auto text = torch::randint(20, {26, 3});
  for (int epoch = 0; epoch < 2; ++epoch) {
    State state{torch::zeros({2, 3, 10}), torch::zeros({2, 3, 10})};
    for (int64_t start = 0; start + 1 < text.size(0); start += 10) {
      const int64_t length = std::min<int64_t>(10, text.size(0) - 1 - start);
      state = {std::get<0>(state).detach(), std::get<1>(state).detach()};
      auto [loss, next] =
          step(text.narrow(0, start, length), text.narrow(0, start + 1, length), state);
      state = next;
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      std::printf("%.9g\n", loss.item<double>());
    }
  }
}
