// A training step, compiled: one line changes, the training does not.
//
// Two equal networks train side by side on the same batches, one eagerly, one through Tandem. On
// the default backend, which makes kernels of its own, losses agree up to rounding. On the backend
// `eager` every loss and every parameter must have the same bits.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cmath>
#include <cstdio>

namespace F = torch::nn::functional;

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 3));
}

bool train_beside_eager(const tandem::Options& options, bool same_bits) {
  auto net = make_net();
  auto twin = make_net();
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  torch::optim::SGD twin_optimizer(twin->parameters(), 0.5);

  // The line that changes. Nothing runs yet: the first call traces the function and compiles it.
  auto step = tandem::compile(
      net,
      [net](const at::Tensor& x, const at::Tensor& y) mutable {
        return F::cross_entropy(net->forward(x), y);
      },
      options);

  // Points of three classes, told apart by which of their first three numbers is largest.
  const at::Tensor x = torch::randn({96, 8});
  const at::Tensor y = x.narrow(1, 0, 3).argmax(1);

  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    at::Tensor loss = step(x, y);  // compiled
    optimizer.zero_grad();
    loss.backward();  // ordinary autograd: the compiled backward is a node of its graph
    optimizer.step();
    last = loss.item<double>();
    if (i == 0) first = last;
    if (i % 10 == 0) std::printf("step %2d  loss %.4f\n", i, last);

    at::Tensor twin_loss = F::cross_entropy(twin->forward(x), y);  // eager
    twin_optimizer.zero_grad();
    twin_loss.backward();
    twin_optimizer.step();
    const bool same = same_bits ? torch::equal(loss.detach(), twin_loss.detach())
                                : std::abs(last - twin_loss.item<double>()) < 1e-4;
    if (!same) {
      std::fprintf(stderr, "step %d: the losses differ\n", i);
      return false;
    }
  }

  for (size_t i = 0; same_bits && i < net->parameters().size(); ++i) {
    if (!torch::equal(net->parameters()[i], twin->parameters()[i])) {
      std::fprintf(stderr, "parameter %zu differs from eager's\n", i);
      return false;
    }
  }
  std::printf("%s; the function ran %lld time(s) in %lld calls\n",
              same_bits ? "every parameter has eager's bits" : "every loss is eager's",
              static_cast<long long>(step.stats().traces),
              static_cast<long long>(step.stats().calls));
  return last < first && step.stats().compiles == 1;
}

int main() {
  const bool by_default = train_beside_eager({}, /*same_bits=*/false);
  const bool on_eager = train_beside_eager({.backend = "eager"}, /*same_bits=*/true);
  return by_default && on_eager ? 0 : 1;
}
