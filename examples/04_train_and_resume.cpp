// A whole training: optimizer, train() and eval(), evaluation between epochs, checkpoints.
//
// One compiled function serves training and evaluation: the module's mode and the thread's grad
// mode are guarded, so each kind of call gets an entry of its own, once. torch::load writes into
// the tensors that are there, so the entries stay.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(2, 32))),
        norm(register_module("norm", torch::nn::BatchNorm1d(32))),
        drop(register_module("drop", torch::nn::Dropout(0.1))),
        out(register_module("out", torch::nn::Linear(32, 2))) {}
  at::Tensor forward(const at::Tensor& x) { return out(drop(torch::relu(norm(hidden(x))))); }
  torch::nn::Linear hidden;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear out;
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(4);
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.02));
  auto loss_of = tandem::compile(net, [net](const at::Tensor& x, const at::Tensor& y) mutable {
    return torch::nn::functional::cross_entropy(net->forward(x), y);
  });

  // Inside or outside of a circle; the last quarter of the points is for evaluation.
  const at::Tensor points = torch::randn({512, 2});
  const at::Tensor inside = (points.pow(2).sum(1) < 1.4).to(at::kLong);
  const at::Tensor test_x = points.narrow(0, 384, 128), test_y = inside.narrow(0, 384, 128);

  auto train_epoch = [&] {
    net->train();
    for (int64_t start = 0; start < 384; start += 64) {
      optimizer.zero_grad();
      loss_of(points.narrow(0, start, 64), inside.narrow(0, start, 64)).backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 5.0);
      optimizer.step();
    }
  };
  auto evaluate = [&] {
    net->eval();
    torch::NoGradGuard no_grad;
    return loss_of(test_x, test_y).item<double>();
  };

  // A checkpoint is the module's and the optimizer's, as always: Tandem keeps no state of its own.
  std::stringstream saved_net, saved_optimizer;
  const double before = evaluate();
  double best = before;
  for (int epoch = 0; epoch < 12; ++epoch) {
    train_epoch();
    const double loss = evaluate();
    std::printf("epoch %2d  evaluation loss %.4f%s\n", epoch, loss, loss < best ? "  (saved)" : "");
    if (loss >= best) continue;
    best = loss;
    saved_net.str("");
    saved_optimizer.str("");
    torch::save(net, saved_net);
    torch::save(optimizer, saved_optimizer);
  }
  expect(best < before / 2, "it learns");

  torch::load(net, saved_net);
  torch::load(optimizer, saved_optimizer);
  expect(evaluate() == best, "the loaded network evaluates as the saved one did");
  train_epoch();  // and training goes on from there

  const tandem::Stats stats = loss_of.stats();
  for (const tandem::Miss& miss : stats.misses)
    std::printf("compiled because %s\n", miss.reason.c_str());
  std::printf("%lld calls, %lld entries: training and evaluation\n",
              static_cast<long long>(stats.calls), static_cast<long long>(stats.entries));
  expect(stats.entries == 2 && stats.traces == 2, "two entries, also after loading");
  return 0;
}
