// Microseconds of fused kernels of real models: Tandem's on backend "llvm", eager's ops, and a copy
// of as many bytes; one round for every line on stdin, answered with a line of JSON. run_kernels.py
// asks it and peers/kernel_peer.py in turns. Functions, shapes and names as in the peer.
//
// kernel_bench [threads [--report]]: with --report what report() says of each, on stderr at the
// end.
#include "rounds.h"
#include "tandem/tandem.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(Tensors)>;

/// What keeps a kernel from being faster.
enum class Bound { Memory, Arithmetic };  // Arithmetic: functions or a division for each element

struct Case {
  std::string name;
  Tensors inputs;
  Function function;
  Bound bound = Bound::Arithmetic;
};

at::Tensor normal(std::vector<int64_t> sizes) { return torch::randn(sizes); }

// Where memory bounds a function, its tensors do not fit into the last cache, as those of larger
// models do not: 8192 words of width 768.
const std::vector<Case>& cases() {
  constexpr double kEps = 1e-5;
  static const auto* list = new std::vector<Case>{
      {"pointwise forward",
       {normal({512, 4096}), normal({4096}), normal({4096})},
       [](Tensors t) -> Tensors {
         at::Tensor y = at::tanh(t[0] * t[1] + t[2]);
         return {at::sigmoid(y) * t[0] + at::exp(-y.abs())};
       }},
      {"pointwise row sums",
       {normal({512, 4096})},
       [](Tensors t) -> Tensors {
         return {(t[0] * t[0].cos()).sum(1, true) + t[0].mean(-1, true)};
       }},
      {"gelu tanh forward",
       {normal({512, 1024})},
       [](Tensors t) -> Tensors { return {at::gelu(t[0], "tanh")}; }},
      {"gelu tanh backward",
       {normal({512, 1024}), normal({512, 1024})},
       [](Tensors t) -> Tensors { return {at::gelu_backward(t[0], t[1], "tanh")}; }},
      {"gelu erf forward",
       {normal({2048, 512})},
       [](Tensors t) -> Tensors { return {at::gelu(t[0], "none")}; }},
      {"gelu erf backward",
       {normal({2048, 512}), normal({2048, 512})},
       [](Tensors t) -> Tensors { return {at::gelu_backward(t[0], t[1], "none")}; }},
      {"silu and product",
       {normal({2048, 1024}), normal({2048, 1024})},
       [](Tensors t) -> Tensors { return {at::silu(t[0]) * t[1]}; }},
      {"layer norm forward",
       {normal({8192, 768}), normal({768}), normal({768})},
       [](Tensors t) -> Tensors {
         auto [y, mean, rstd] = at::native_layer_norm(t[0], {768}, t[1], t[2], kEps);
         return {y, mean, rstd};
       },
       Bound::Memory},
      {"layer norm backward, input",
       {normal({8192, 768}), normal({8192, 768}), normal({8192, 1}), normal({8192, 1}),
        normal({768}), normal({768})},
       [](Tensors t) -> Tensors {
         auto [x, w, b] = at::native_layer_norm_backward(t[0], t[1], {768}, t[2], t[3], t[4], t[5],
                                                         {true, false, false});
         return {x};
       },
       Bound::Memory},
      {"layer norm backward, weights",
       {normal({8192, 768}), normal({8192, 768}), normal({8192, 1}), normal({8192, 1})},
       [](Tensors t) -> Tensors {
         at::Tensor scaled = (t[1] - t[2]) * t[3];
         return {(t[0] * scaled).sum(0), t[0].sum(0)};
       },
       Bound::Memory},
      {"softmax forward",
       {normal({4096, 512})},
       [](Tensors t) -> Tensors { return {at::softmax(t[0], -1)}; }},
      {"softmax backward",
       {normal({12288, 512}), at::softmax(normal({12288, 512}), -1)},
       [](Tensors t) -> Tensors {
         return {at::_softmax_backward_data(t[0], t[1], -1, at::kFloat)};
       },
       Bound::Memory},
      {"log softmax forward",
       {normal({512, 2048})},
       [](Tensors t) -> Tensors { return {at::log_softmax(t[0], -1)}; }},
      {"masked softmax",
       {normal({64, 128, 128}), torch::ones({128, 128}, torch::kBool).tril()},
       [](Tensors t) -> Tensors {
         return {at::softmax(at::masked_fill(t[0] * 0.125, t[1].logical_not(), -1e9), -1)};
       }},
      {"bias and residual",
       {normal({8192, 768}), normal({768}), normal({8192, 768})},
       [](Tensors t) -> Tensors { return {at::relu(t[0] + t[1]) + t[2]}; },
       Bound::Memory},
      {"bias gradient",
       {normal({8192, 3072})},
       [](Tensors t) -> Tensors { return {t[0].sum(0)}; },
       Bound::Memory},
      {"relu backward and sum",
       {normal({4096, 1536}), normal({4096, 1536})},
       [](Tensors t) -> Tensors {
         at::Tensor g = at::threshold_backward(t[0], t[1], 0);
         return {g, g.sum(0)};
       },
       Bound::Memory},
      {"mean square error",
       {normal({8192, 1024}), normal({8192, 1024})},
       [](Tensors t) -> Tensors {
         at::Tensor d = t[0] - t[1];
         return {(d * d).mean()};
       },
       Bound::Memory},
      {"adam",
       {normal({2359296}), normal({2359296}), normal({2359296}), normal({2359296}).abs()},
       [](Tensors t) -> Tensors {
         at::Tensor m = t[2] * 0.9 + t[1] * 0.1;
         at::Tensor v = t[3] * 0.999 + t[1] * t[1] * 0.001;
         return {t[0] - m * 0.001 / (v.sqrt() + 1e-8), m, v};
       }},
      {"bf16 gelu forward",
       {normal({2048, 1024}).to(at::kBFloat16)},
       [](Tensors t) -> Tensors { return {at::gelu(t[0], "tanh")}; }},
  };
  return *list;
}

int64_t bytes_of(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// A case and all that one round of it needs.
class Contest {
 public:
  explicit Contest(const Case& it)
      : it_(it), compiled_(tandem::compile_boxed(it.function, options())) {
    const int64_t bytes = bytes_of(it.inputs) + bytes_of(it.function(it.inputs));
    from_ = torch::zeros({bytes / 8});
    to_ = torch::zeros({bytes / 8});
  }

  std::string report() const { return it_.name + "\n" + compiled_.report(); }

  std::string round() {
    compiled_(it_.inputs);
    const int64_t compiles = compiled_.stats().compiles;
    const double tandem_us = time([&] { compiled_(it_.inputs); });
    const double eager_us = time([&] { it_.function(it_.inputs); });
    const double copy_us = time([&] { to_.copy_(from_); });
    const tandem::Stats stats = compiled_.stats();
    if (stats.compiles != compiles || stats.eager_calls != 0)
      throw std::runtime_error(it_.name + ": not every call ran the compiled function");
    return fmt::format(
        R"("{}": {{"compiled_us": {:.2f}, "eager_us": {:.2f}, "copy_us": {:.2f}, "bytes": {}, "memory_bound": {}}})",
        it_.name, tandem_us, eager_us, copy_us, 8 * from_.numel(), it_.bound == Bound::Memory);
  }

 private:
  static tandem::Options options() {
    tandem::Options options;
    options.backend = "llvm";
    return options;
  }

  /// The best of a few: what another process takes away is not the kernel's.
  template <class Fn>
  static double time(Fn&& fn) {
    double best = 1e9;
    for (int i = 0; i < 7; ++i) best = std::min(best, 1e6 * bench::seconds_of([&] { fn(); }));
    return best;
  }

  const Case& it_;
  tandem::Compiled<Tensors(Tensors)> compiled_;
  at::Tensor from_, to_;
};

}  // namespace

int main(int argc, char** argv) try {
  const at::NoGradGuard no_grad;
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  torch::manual_seed(0);
  std::vector<Contest> contests;
  for (const Case& it : cases()) contests.emplace_back(it);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string answer;
    for (Contest& contest : contests) answer += (answer.empty() ? "" : ", ") + contest.round();
    fmt::print("{{{}}}\n", answer);
    std::fflush(stdout);
  }
  if (argc > 2 && std::string_view(argv[2]) == "--report")
    for (const Contest& contest : contests) fmt::print(stderr, "{}\n", contest.report());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "kernel_bench: {}\n", error.what());
  return 1;
}
