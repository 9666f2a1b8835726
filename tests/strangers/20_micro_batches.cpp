// Gradients of four small batches are added before each update.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(19);
  torch::nn::TransformerEncoder encoder(
      torch::nn::TransformerEncoderLayer(
          torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1)),
      2);
  torch::nn::Linear head(16, 5);
  auto loss_of =
      tandem::compile(std::tuple{encoder, head}, [=](torch::Tensor x, torch::Tensor y) mutable {
        auto scores = head(encoder(x)).mean(0);
        return torch::nn::functional::cross_entropy(scores, y) / 4;
      });
  std::vector<torch::Tensor> parameters = encoder->parameters();
  for (auto& p : head->parameters()) parameters.push_back(p);
  torch::optim::AdamW optimizer(parameters, 1e-3);
  for (int update = 0; update < 3; ++update) {
    double sum = 0;
    for (int micro = 0; micro < 4; ++micro) {
      auto loss = loss_of(torch::randn({update == 2 ? 4 : 6, 3, 16}), torch::randint(5, {3}));
      loss.backward();
      sum += loss.item<double>();
    }
    optimizer.step();
    optimizer.zero_grad(/*set_to_none=*/update % 2 == 0);
    std::printf("%.9g\n", sum);
  }
}
