// Nanoseconds of whole calls on tiny tensors, eager and compiled, one round for every line on
// stdin, answered with a line of JSON. run_compiled_call.py asks it and peers/compiled_call_peer.py
// in turns. (call_bench has what a call costs beside its work.)
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kCalls = 500;  // in one round
constexpr int64_t kElements = 16;

/// `x * y + x`, and `x` times every parameter.
struct Case {
  Case(std::string name, int64_t count, bool grad)
      : name(std::move(name)),
        grad(grad),
        x(torch::randn({kElements})),
        y(torch::randn({kElements})) {
    for (int64_t i = 0; i < count; ++i)
      parameters.push_back(torch::randn({kElements}, torch::requires_grad()));
    eager = [parameters = parameters](const at::Tensor& x, const at::Tensor& y) {
      at::Tensor result = x * y + x;
      for (const at::Tensor& parameter : parameters) result = result + x * parameter;
      return result;
    };
    compiled = tandem::compile(eager);
  }

  /// `"name": {"eager_ns": .., "compiled_ns": ..}`
  std::string round() {
    const at::AutoGradMode mode(grad);
    compiled(x, y);
    eager(x, y);
    const int64_t compiles = compiled.stats().compiles;
    const double eager_ns = time([&] { eager(x, y); });
    const double compiled_ns = time([&] { compiled(x, y); });
    const tandem::Stats stats = compiled.stats();
    if (stats.compiles != compiles || stats.eager_calls != 0)
      throw std::runtime_error(name + ": not every call ran the compiled function");
    return fmt::format("\"{}\": {{\"eager_ns\": {:.1f}, \"compiled_ns\": {:.1f}}}", name, eager_ns,
                       compiled_ns);
  }

  template <class Fn>
  static double time(Fn&& fn) {
    return 1e9 / kCalls * bench::seconds_of([&] {
             for (int i = 0; i < kCalls; ++i) fn();
           });
  }

  std::string name;
  bool grad;
  at::Tensor x, y;
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> eager;
  tandem::Compiled<at::Tensor(at::Tensor, at::Tensor)> compiled;
};

}  // namespace

int main() try {
  at::set_num_threads(1);
  // Names and sizes as in the peer.
  Case cases[] = {{"4 parameters", 4, true},
                  {"4 parameters, no gradients", 4, false},
                  {"104 parameters", 104, true}};
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string answer;
    for (Case& one : cases) answer += (answer.empty() ? "" : ", ") + one.round();
    fmt::print("{{{}}}\n", answer);
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "compiled_call_bench: {}\n", error.what());
  return 1;
}
