// What must cost next to nothing, as a share of the same call without it: calls beyond max_entries
// of eager's, small matrix products with Rounding::fast of those without.
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace {

constexpr int kCalls = 500;  // in one round

std::function<void()> many(std::function<void()> call) {
  return [call = std::move(call)] {
    for (int i = 0; i < kCalls; ++i) call();
  };
}

void add(bench::Report& report, const std::string& name, const std::function<void()>& with,
         const std::function<void()>& without) {
  with();
  without();
  const bench::Rounds rounds = bench::interleave(many(with), many(without));
  const bench::Ratio ratio = rounds.ratio();
  report.add(name, {{"ns", rounds.median_a() / kCalls * 1e9},
                    {"without_ns", rounds.median_b() / kCalls * 1e9},
                    {"ratio", ratio.value},
                    {"ratio_low", ratio.low},
                    {"ratio_high", ratio.high}});
  fmt::print("{:<34}{:>9.0f} ns{:>9.0f} ns  {:.2f} ({:.2f} to {:.2f})\n", name,
             rounds.median_a() / kCalls * 1e9, rounds.median_b() / kCalls * 1e9, ratio.value,
             ratio.low, ratio.high);
}

void beyond_max_entries(bench::Report& report) {
  const auto eager = [](const at::Tensor& x, double scale) { return (x * scale + x).tanh(); };
  const auto compiled = tandem::compile(eager);
  const at::Tensor x = torch::randn({16});
  for (int i = 0; i < 17; ++i) compiled(x, i * 0.25);
  const int64_t before = compiled.stats().eager_calls;
  double scale = 100;  // a new number in every call, as of a schedule
  add(
      report, "beyond max_entries", [&, compiled] { compiled(x, scale += 1); },
      [&, eager] { eager(x, scale += 1); });
  if (compiled.stats().eager_calls <= before)
    throw std::runtime_error("the calls are not beyond max_entries");
}

void small_products(bench::Report& report) {
  for (const int64_t n : {8, 32, 96}) {
    const at::Tensor x = torch::randn({n, n}), w = torch::randn({n, n});
    const auto product = [](const at::Tensor& a, const at::Tensor& b) { return a.mm(b); };
    tandem::Options options;
    options.backend = "llvm";
    const auto exact = tandem::compile(product, options);
    options.rounding = tandem::Rounding::fast;
    const auto fast = tandem::compile(product, options);
    add(
        report, fmt::format("product of {0} x {0}, fast", n), [=] { fast(x, w); },
        [=] { exact(x, w); });
  }
}

}  // namespace

int main(int argc, char** argv) try {
  at::set_num_threads(1);
  tandem::set_warning_sink([](const std::string&) {});
  bench::Report report("overheads");
  beyond_max_entries(report);
  small_products(report);
  return report.write(argc, argv) ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "overhead_bench: {}\n", error.what());
  return 1;
}
