// What it costs that a compiled function checks itself, as the ratio of many calls with checks by
// default to as many with none (verify_every = 0).
#include "models.h"
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using namespace bench;

// Elements of the tensors of a small function: some 10 us of work on today's machines, and none.
constexpr int64_t kTenMicroseconds = 24'000, kNothing = 16;

struct Size {
  int rounds = kRounds;
  int64_t blocks = 12, block_calls = 1000, small_calls = 100000;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void report_case(const std::string& name, const Rounds& rounds, int64_t calls, Report& report) {
  const Ratio ratio = rounds.ratio();
  const double call_us = 1e6 * rounds.median_b() / static_cast<double>(calls);
  fmt::print("{:<44} {:>10.1f} us {:>9.4f}  {:.4f} to {:.4f}\n", name, call_us, ratio.value,
             ratio.low, ratio.high);
  report.add(name, {{"call_us", call_us},
                    {"ratio", ratio.value},
                    {"ratio_low", ratio.low},
                    {"ratio_high", ratio.high}});
}

/// All the calls of a young entry, its checks among them. `elements` of a tensor decide how long a
/// call takes: of 16 there is nothing but the call itself.
void measure_small(const Size& size, int64_t elements, Report& report) {
  at::set_num_threads(1);
  const at::Tensor x = torch::randn({elements}), y = torch::randn({elements});
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 4; ++i)
    parameters.push_back(torch::randn({elements}, torch::requires_grad()));
  const auto function = [parameters](const at::Tensor& x, const at::Tensor& y) {
    at::Tensor result = x * y + x;
    for (const at::Tensor& parameter : parameters) result = result + x * parameter;
    return result;
  };
  auto checked = tandem::compile(function);
  auto unchecked = tandem::compile(function, {.verify_every = 0});
  const auto seconds = [&](auto& fn) {
    fn.reset();
    fn(x, y);
    const int64_t before = fn.stats().checks;
    const double all = seconds_of([&] {
      for (int64_t i = 1; i < size.small_calls; ++i) fn(x, y);
    });
    const int64_t expected = std::bit_width(static_cast<uint64_t>(size.small_calls)) - 1;
    require(fn.stats().checks - before == (&fn == &checked ? expected : 0),
            "another number of checks than expected");
    return all;
  };
  Rounds rounds;
  for (int i = 0; i < size.rounds; ++i) {
    // In turns, each of them first in every second round.
    double with = i % 2 == 0 ? seconds(checked) : 0;
    rounds.b.push_back(seconds(unchecked));
    if (i % 2 != 0) with = seconds(checked);
    rounds.a.push_back(with);
  }
  report_case(fmt::format("{} calls on {} elements", size.small_calls, elements), rounds,
              size.small_calls, report);
}

/// A thousand steps would take minutes, so one that is checked is timed against one that is not,
/// and as many of them are counted as checks come by.
void measure_blocks(const Size& size, int threads, Report& report) {
  at::set_num_threads(threads);
  torch::nn::Sequential net = plain_blocks(size.blocks);
  const at::Tensor input = plain_input();
  const auto loss = [net](const at::Tensor& x) mutable { return net->forward(x).sum(); };
  auto checked = tandem::compile(net, loss, {.verify_every = 1});
  auto unchecked = tandem::compile(net, loss, {.verify_every = 0});
  const auto step = [&](auto& fn) {
    fn(input).backward();
    net->zero_grad();
  };
  step(checked);
  step(unchecked);
  Rounds rounds = interleave([&] { step(checked); }, [&] { step(unchecked); }, size.rounds);
  require(checked.stats().checks >= size.rounds, "not every call was checked");
  const double checks = std::bit_width(static_cast<uint64_t>(size.block_calls)) - 1;
  fmt::print("  a check takes {:.1f} ms\n", 1e3 * (rounds.median_a() - rounds.median_b()));
  for (size_t i = 0; i < rounds.a.size(); ++i)
    rounds.a[i] =
        rounds.b[i] + (rounds.a[i] - rounds.b[i]) * checks / static_cast<double>(size.block_calls);
  report_case(fmt::format("{} steps of {} blocks", size.block_calls, size.blocks), rounds, 1,
              report);
}

}  // namespace

int main(int argc, char** argv) try {
  Size size;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--small") size = {1, 1, 1000, 1000};
    if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
      size.rounds = std::stoi(argv[i + 1]);
  }
  const int threads = at::get_num_threads();
  Report report("check");
  fmt::print("{:<44} {:>13} {:>9}  {}\n", "calls that check themselves", "one call", "ratio",
             "95 %");
  measure_small(size, kTenMicroseconds, report);
  measure_small(size, kNothing, report);
  measure_blocks(size, threads, report);
  return report.write(argc, argv) ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "check_bench: {}\n", error.what());
  return 1;
}
