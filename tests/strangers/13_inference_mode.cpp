// Trains, predicts in inference mode, trains again.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(12);
  torch::nn::Sequential net(torch::nn::Linear(7, 14), torch::nn::Dropout(0.2), torch::nn::Mish(),
                            torch::nn::Linear(14, 7));
  auto forward = tandem::compile(net);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  const at::Tensor data = torch::randn({33, 7});
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->train();
    for (const at::Tensor& batch : data.split(16)) {
      optimizer.zero_grad();
      at::Tensor loss = torch::l1_loss(forward(batch), batch);
      loss.backward();
      optimizer.step();
      std::printf("train %.9g\n", loss.item<double>());
    }
    net->eval();
    c10::InferenceMode guard;
    at::Tensor out = forward(data);
    std::printf("valid %.9g %d\n", torch::l1_loss(out, data).item<double>(),
                int(out.is_inference()));
  }
}
