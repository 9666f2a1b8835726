#include <tandem/tandem.h>

#include <torch/torch.h>

#include <iostream>

int main() {
  torch::nn::Linear net(3, 2);
  auto step =
      tandem::compile(net, [&](const at::Tensor& x) { return net->forward(x).sin().sum(); });

  at::Tensor x = torch::randn({4, 3});
  at::Tensor loss = step(x);
  loss.backward();

  at::Tensor expected = torch::autograd::grad({net->forward(x).sin().sum()}, {net->weight})[0];
  bool same = torch::allclose(net->weight.grad(), expected);
  std::cout << "tandem " << tandem::version() << ": " << (same ? "gradient as eager's" : "WRONG")
            << '\n';
  return same ? 0 : 1;
}
