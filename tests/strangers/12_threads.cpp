// Several threads ask one compiled network; each trains a network of its own beside it.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>
#include <thread>
#include <vector>

static std::vector<double> work(int index, const std::function<at::Tensor(at::Tensor)>& teacher) {
  at::Generator numbers = at::detail::createCPUGenerator(100 + index);
  torch::nn::Linear student(6, 3);
  {
    torch::NoGradGuard guard;
    for (auto& p : student->parameters()) p.uniform_(-0.3, 0.3, numbers);
  }
  auto imitate = tandem::compile(student, [&](const at::Tensor& x, const at::Tensor& wanted) {
    return torch::kl_div(torch::log_softmax(student->forward(x), 1), wanted, at::Reduction::Sum);
  });
  torch::optim::SGD optimizer(student->parameters(), 0.05);
  std::vector<double> losses;
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = torch::randn({i % 4 == 3 ? 3 : 10, 6}, numbers);
    at::Tensor wanted;
    {
      torch::NoGradGuard guard;
      wanted = teacher(x);
    }
    const at::Tensor loss = imitate(x, wanted);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

int main() {
  torch::manual_seed(11);
  at::set_num_threads(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 12), torch::nn::Tanh(), torch::nn::Linear(12, 3),
                            torch::nn::Softmax(1));
  net->eval();
  auto teacher = tandem::compile(net, [net](at::Tensor x) mutable { return net->forward(x); });
  std::vector<std::vector<double>> results(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { results[static_cast<size_t>(i)] = work(i, teacher); });
  for (auto& thread : threads) thread.join();
  for (const auto& losses : results)
    for (double loss : losses) std::printf("%.9g\n", loss);
}
