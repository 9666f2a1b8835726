// Training steps of one model in C++: eager libtorch and Tandem's backends. run_peers.py starts it
// beside peers/step_peer.py, which does the same through torch.compile.
//
// Usage: peer_bench MODEL THREADS [MODE ...]         one round for every line on stdin
//        peer_bench --once MODEL THREADS MODE        the first step of a process, and a few more
//        peer_bench --report MODEL THREADS MODE      what was compiled, and how long its kernels
//        take
// Modes: eager, tandem_eager, llvm, llvm_fast (rounding and random numbers as is fastest).
#include "models.h"
#include "rounds.h"
#include "tandem/tandem.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using Compiled = decltype(tandem::compile(std::declval<std::shared_ptr<torch::nn::Module>>(),
                                          std::declval<decltype(bench::Workload::loss)>(),
                                          std::declval<tandem::Options>()));

tandem::Options options_of(const std::string& mode) {
  tandem::Options options;
  if (mode == "tandem_eager") return options;
  options.backend = "llvm";
  if (mode == "llvm") return options;
  if (mode != "llvm_fast")
    throw std::runtime_error("no mode is called " + mode +
                             ": expected eager, tandem_eager, llvm or llvm_fast");
  options.rounding = tandem::Rounding::fast;
  options.random = tandem::Random::fast;
  return options;
}

/// A model in one mode. Models of several modes share their parameters.
class Contest {
 public:
  Contest(const bench::Workload& work, std::string mode) : work_(work), mode_(std::move(mode)) {
    if (mode_ != "eager")
      compiled_.emplace(tandem::compile(work.net, work.loss, options_of(mode_)));
  }

  const std::string& mode() const { return mode_; }
  const std::optional<Compiled>& compiled() const { return compiled_; }

  /// Seconds of forward, loss and backward, after gradients were forgotten.
  double step() {
    return bench::seconds_of([&] {
      work_.net->zero_grad();
      const at::Tensor loss = compiled_ ? (*compiled_)(work_.input, work_.target)
                                        : work_.loss(work_.input, work_.target);
      loss.backward();
      loss_ = loss.item<double>();
    });
  }
  double loss() const { return loss_; }

  /// The median of as many steps as take a tenth of a second, but at least three.
  double round() {
    std::vector<double> times;
    double sum = 0;
    while (times.size() < 3 || sum < 0.1) sum += times.emplace_back(step());
    check();
    return bench::median(std::move(times));
  }

  void check() const {
    if (!compiled_) return;
    const tandem::Stats stats = compiled_->stats();
    if (stats.compiles != 1 || stats.eager_calls != 0)
      throw std::runtime_error(mode_ + ": not every step ran what was compiled at first");
  }

 private:
  const bench::Workload& work_;
  std::string mode_;
  std::optional<Compiled> compiled_;
  double loss_ = 0;
};

/// malloc_meter.cpp's functions, if it was preloaded.
int64_t metered(const char* name) {
  auto* function = reinterpret_cast<int64_t (*)()>(dlsym(RTLD_DEFAULT, name));
  return function ? function() : 0;
}

void once(const bench::Workload& work, const std::string& mode) {
  Contest contest(work, mode);
  const int64_t before = metered("malloc_meter_restart");
  torch::manual_seed(1);
  const double first = contest.step();
  const double loss = contest.loss();
  const int64_t first_peak = metered("malloc_meter_peak") - before;
  contest.step();
  metered("malloc_meter_restart");
  std::vector<double> later;
  for (int i = 0; i < 7; ++i) later.push_back(contest.step());
  const int64_t later_peak = metered("malloc_meter_peak") - before;
  work.net->zero_grad();
  const int64_t kept = metered("malloc_meter_restart") - before;
  contest.check();
  std::string stages;
  if (contest.compiled()) {
    for (const auto& [stage, seconds] : contest.compiled()->stats().seconds)
      stages += fmt::format(R"({}"{}": {:.2f})", stages.empty() ? "" : ", ", stage, 1e3 * seconds);
  }
  fmt::print(R"({{"first_ms": {:.3f}, "step_ms": {:.3f}, "loss": {:.9g}, "first_peak": {}, )"
             R"("later_peak": {}, "kept": {}, "stages_ms": {{{}}}}})"
             "\n",
             1e3 * first, 1e3 * bench::median(std::move(later)), loss, first_peak, later_peak, kept,
             stages);
}

void report(const bench::Workload& work, const std::string& mode) {
  Contest contest(work, mode);
  for (int i = 0; i < 20; ++i) contest.step();
  if (!contest.compiled()) throw std::runtime_error("eager compiles nothing to report on");
  fmt::print("{}\n", contest.compiled()->report());
}

void answer_lines(const bench::Workload& work, std::vector<std::string> modes) {
  std::vector<std::unique_ptr<Contest>> contests;
  for (const std::string& mode : modes) contests.push_back(std::make_unique<Contest>(work, mode));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string answer;
    for (const auto& contest : contests)
      answer += fmt::format(R"({}"{}": {:.4f})", answer.empty() ? "" : ", ", contest->mode(),
                            1e3 * contest->round());
    std::ranges::reverse(contests);
    fmt::print("{{{}}}\n", answer);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::string kind;
  if (!words.empty() && words[0].starts_with("--")) {
    kind = words[0];
    words.erase(words.begin());
  }
  if (words.size() < (kind.empty() ? 2 : 3))
    throw std::runtime_error("usage: peer_bench [--once | --report] MODEL THREADS MODE ...");
  at::set_num_threads(std::stoi(words[1]));
  const bench::Workload work = bench::workload(words[0]);
  words.erase(words.begin(), words.begin() + 2);
  if (kind == "--once") {
    once(work, words[0]);
  } else if (kind == "--report") {
    report(work, words[0]);
  } else {
    if (words.empty()) words = {"eager", "tandem_eager", "llvm", "llvm_fast"};
    answer_lines(work, words);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "peer_bench: {}\n", error.what());
  return 1;
}
