// The program of README.md, word for word. It is compiled as it stands, and run as a test.
// [readme]
#include <tandem/tandem.h>

#include <torch/torch.h>

int main() {
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::GELU(), torch::nn::Linear(32, 3));
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/0.1);

  // This line is new. Without it, `step` would be the lambda itself.
  auto step = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    return torch::nn::functional::cross_entropy(net->forward(x), y);
  });

  const at::Tensor x = torch::randn({64, 8}), y = torch::randint(3, {64});
  for (int i = 0; i < 10; ++i) {
    at::Tensor loss = step(x, y);  // the first call traces and compiles
    optimizer.zero_grad();
    loss.backward();  // ordinary autograd: the compiled backward is a node of its graph
    optimizer.step();
  }
}
// [end]
