// When is a function compiled again? An entry serves calls for which its guards hold.
//
// Tandem sees arguments, tensors, named modules and the state of the thread by itself. Plain C++
// state that the function reads must be named: otherwise the value of the trace stays in the graph.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

enum class Mode { plain, squared };

int main() {
  torch::manual_seed(6);
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
  at::Tensor mask = torch::ones({4});  // will be assigned again
  Mode mode = Mode::plain;             // Tandem cannot see an enum of the program

  auto fn = tandem::compile(net,
                            [&](const at::Tensor& x, double scale) {
                              const at::Tensor y = net->forward(x) * mask * scale;
                              return mode == Mode::squared ? y.pow(2).sum() : y.sum();
                            },
                            {.closes_over = {&mask}, .guard_on = [&] { return mode; }});

  const at::Tensor x = torch::randn({2, 4});
  fn(x, 1.0);
  fn(torch::randn({2, 4}), 1.0);  // other numbers: a hit
  mask.mul_(0.5);                 // new data in the same tensor: a hit
  {
    torch::NoGradGuard no_grad;
    net->parameters()[0].zero_();
  }
  fn(x, 1.0);  // and so are new weights
  expect(fn.stats().hits == 2, "data is not guarded");

  fn(torch::randn({3, 4}), 1.0);  // another size
  fn(x, 2.0);                     // another number
  expect(fn.stats().entries == 1 && fn.stats().variants == 3, "both are variants of the entry");
  net->eval();
  fn(x, 1.0);  // no dropout any more
  mask = torch::zeros({4});
  fn(x, 1.0);  // another tensor in the variable
  mode = Mode::squared;
  fn(x, 1.0);  // another answer of guard_on

  std::cout << "--- compiled because\n";
  for (const tandem::Miss& miss : fn.stats().misses) std::cout << miss << "\n";
  expect(fn.stats().misses.size() == 4,
         "one miss for the first call and each of the three changes");

  std::cout << "--- the last entry serves a call when\n";
  for (const tandem::Guard& guard : fn.entries().back().guards()) std::cout << guard.text << "\n";

  // Going back is free: the entry of before still exists.
  mode = Mode::plain;
  fn(x, 1.0);
  expect(fn.stats().entries == 4 && fn.stats().hits == 3, "an old entry serves again");

  // What would a call do? explain() answers without doing it.
  const std::string forecast = fn.explain(torch::randn({7, 4}), 1.0);
  std::cout << "--- explain, for another size\n" << forecast;
  expect(forecast.find("[7, 4]") != std::string::npos, "the forecast names the size");
  expect(fn.stats().entries == 4, "explain compiles nothing for later");
  return 0;
}
