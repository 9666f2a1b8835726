#include "backends/eager/eager_backend.h"
#include "backends/llvm_cpu/cpu_compiler.h"
#include "base/error.h"
#include "loops/host/kernel_backend.h"
#include "support/one_thread.h"
#include "support/paths.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

// How far sums, statistics and norms in float32 are from the truth, beside eager's, over data that
// asks for more than numbers around zero do. The page docs/reference/math-accuracy.md has the
// figures and is checked here.
namespace tandem {
namespace {

using at::Tensor;
using backends::llvm_cpu::InstructionSet;
using Sizes = std::vector<int64_t>;
using Function = std::function<Tensor(const Tensor&)>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Numbers as float32s, whatever is computed with them.
struct Data {
  const char* name;
  std::function<Tensor(const Sizes&)> make;
};

const std::vector<Data>& all_data() {
  static const auto* list = new std::vector<Data>{
      {"normal", [](const Sizes& sizes) { return torch::randn(sizes); }},
      {"mean 1e4", [](const Sizes& sizes) { return torch::randn(sizes) + 1e4; }},
      {"equal 0.1", [](const Sizes& sizes) { return torch::full(sizes, 0.1F); }},
      {"around 1e-25", [](const Sizes& sizes) { return torch::randn(sizes) * 1e-25; }},
      {"around 1e20", [](const Sizes& sizes) { return torch::randn(sizes) * 1e20; }},
      {"equal 3e38", [](const Sizes& sizes) { return torch::full(sizes, 3e38F); }},
  };
  return *list;
}

struct Case {
  const char* name;
  Sizes sizes;
  Function function;
  bool gradient = false;  // that of the argument is what counts
  double slack = 16;      // units beside twice eager's error: those of a sum, or of a program
  size_t data = 6;        // how many kinds; the others show nothing
};

Tensor scale_of(const Tensor& x, int64_t size) {
  return torch::linspace(0.5, 1.5, size, x.options());
}

const std::vector<Case>& cases() {
  using T = const Tensor&;
  static const auto* list = new std::vector<Case>{
      {"sum", {60000}, [](T x) { return x.sum(); }, false, 4},
      {"sum of rows", {16, 5000}, [](T x) { return x.sum(1); }, false, 4},
      {"sum of columns", {5000, 16}, [](T x) { return x.sum(0); }, false, 4},
      {"sum over two dims", {300, 4, 37}, [](T x) { return x.sum({0, 2}); }, false, 4},
      {"mean", {60000}, [](T x) { return x.mean(); }, false, 4},
      {"var", {16, 5000}, [](T x) { return x.var(1); }},
      {"std", {16, 5000}, [](T x) { return x.std(1); }},
      {"std of columns", {5000, 16}, [](T x) { return x.std(0); }},
      {"logsumexp", {16, 5000}, [](T x) { return x.logsumexp(1); }, false, 16, 3},
      {"softmax", {16, 5000}, [](T x) { return x.softmax(1); }, false, 16, 3},
      {"layer_norm",
       {16, 768},
       [](T x) { return at::layer_norm(x, {768}, scale_of(x, 768), scale_of(x, 768)); }},
      {"batch_norm",
       {8, 6, 17, 17},
       [](T x) {
         return at::batch_norm(x, scale_of(x, 6), scale_of(x, 6), {}, {}, true, 0.1, 1e-5, false);
       }},
      {"group_norm",
       {4, 8, 17, 17},
       [](T x) { return at::group_norm(x, 2, scale_of(x, 8), scale_of(x, 8)); }},
      {"layer_norm, gradient",
       {16, 768},
       [](T x) { return at::layer_norm(x, {768}, scale_of(x, 768), scale_of(x, 768)); },
       true},
      {"batch_norm, gradient",
       {8, 6, 17, 17},
       [](T x) {
         return at::batch_norm(x, scale_of(x, 6), scale_of(x, 6), {}, {}, true, 0.1, 1e-5, false);
       },
       true},
      {"group_norm, gradient",
       {4, 8, 17, 17},
       [](T x) { return at::group_norm(x, 2, scale_of(x, 8), scale_of(x, 8)); },
       true},
      {"std, gradient", {16, 5000}, [](T x) { return x.std(1); }, true},
  };
  return *list;
}

/// The function's result, or the gradient of its argument.
Tensor outcome(const Case& one, const Function& function, const Tensor& data) {
  if (!one.gradient) return function(data).to(at::kDouble);
  const Tensor x = data.detach().clone().requires_grad_(true);
  const Tensor y = function(x);
  torch::manual_seed(11);
  const Tensor tangent = torch::randn(y.sizes(), at::kFloat).to(y.scalar_type());
  return torch::autograd::grad({y}, {x}, {tangent})[0].to(at::kDouble);
}

/// The largest distance, in units in the last place of the largest element.
double distance(const Tensor& got, const Tensor& truth) {
  // What float32 cannot hold is right as infinity.
  const Tensor rounded = truth.to(at::kFloat).to(at::kDouble);
  const Tensor off = at::where((got == rounded) | (got.isnan() & rounded.isnan()),
                               at::zeros_like(got), (got - rounded).abs());
  const double largest = truth.abs().max().item<double>();
  const double worst = off.isnan().any().item<bool>() ? kInfinity : off.max().item<double>();
  if (worst == 0) return 0;
  return largest > 0 ? worst / (largest * 0x1p-23) : kInfinity;
}

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> out;
  for (InstructionSet set :
       {InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Baseline})
    if (backends::llvm_cpu::host_has(set)) out.push_back(set);
  return out;
}

/// `sum | equal 0.1` -> eager, avx512, avx2, baseline, from the page.
std::map<std::string, std::map<std::string, double>> documented() {
  std::ifstream page(std::string(test::kTestsDir) + "/../docs/reference/math-accuracy.md");
  std::map<std::string, std::map<std::string, double>> table;
  for (std::string line; std::getline(page, line);) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '|');) cells.push_back(cell);
    if (cells.size() != 7) continue;
    const auto number = [&](size_t i) { return std::strtod(cells[i].c_str(), nullptr); };
    const auto trimmed = [&](size_t i) { return cells[i].substr(1, cells[i].size() - 2); };
    table[trimmed(1) + " | " + trimmed(2)] = {
        {"eager", number(3)}, {"avx512", number(4)}, {"avx2", number(5)}, {"baseline", number(6)}};
  }
  return table;
}

std::string shown(double units) {
  if (std::isinf(units)) return "inf";
  if (units == 0) return "0";
  // With two digits: the figures of another machine are not those of this one to the last.
  const double size = units < 1 ? 0.1 : std::pow(10, std::floor(std::log10(units)) - 1);
  std::ostringstream out;
  out << std::ceil(units / size - 1e-9) * size;
  return out.str();
}

// TANDEM_PRINT_ACCURACY=1 prints the rows of the page.
TEST(SumAccuracy, IsAsItsPageSays) {
  const test::OneThread one_thread;
  const auto page = documented();
  const bool print = std::getenv("TANDEM_PRINT_ACCURACY") != nullptr;
  for (const Case& one : cases()) {
    std::map<InstructionSet, Function> compiled;
    for (InstructionSet set : sets()) {
      compiled.emplace(set,
                       compile(one.function, Options{.backend = loops::make_backend(
                                                         backends::llvm_cpu::make_cpu_compiler(set),
                                                         backends::eager::make_backend())}));
    }
    for (size_t kind = 0; kind < one.data; ++kind) {
      const Data& data = all_data()[kind];
      const std::string row = base::str(one.name, " | ", data.name);
      SCOPED_TRACE(row);
      torch::manual_seed(5);
      const Tensor x = data.make(one.sizes);
      const Tensor truth = outcome(one, one.function, x.to(at::kDouble));
      // There is no true gradient of what does not vary.
      if (truth.isnan().any().item<bool>()) continue;
      const double eager = distance(outcome(one, one.function, x), truth);
      std::string line = base::str("| ", row, " | ", shown(eager));
      for (InstructionSet set : sets()) {
        const double ours = distance(outcome(one, compiled.at(set), x), truth);
        line += base::str(" | ", shown(ours));
        EXPECT_LE(ours, 2 * eager + one.slack) << name(set);
        if (print) continue;
        ASSERT_TRUE(page.contains(row));
        EXPECT_LE(ours, 1.01 * page.at(row).at(std::string(name(set)))) << name(set);
      }
      if (print) std::printf("%s |\n", line.c_str());
    }
  }
}

// There is nothing wider to carry them in.
TEST(SumAccuracy, SumsOfDoublesAreAsExactAsEagers) {
  const test::OneThread one_thread;
  for (const Sizes& sizes : {Sizes{1, 60000}, Sizes{16, 5000}, Sizes{3, 1000000}, Sizes{700, 37}}) {
    for (const Data& data : all_data()) {
      SCOPED_TRACE(base::str(data.name, ", ", sizes[0], " rows"));
      const Tensor x = data.make(sizes).to(at::kDouble) / 3;
      Tensor truth = torch::empty({sizes[0]}, at::kDouble);
      double largest = 0;
      for (int64_t row = 0; row < sizes[0]; ++row) {
        long double sum = 0;
        for (int64_t i = 0; i < sizes[1]; ++i) {
          sum += static_cast<long double>(x.const_data_ptr<double>()[row * sizes[1] + i]);
          largest = std::max(largest, std::abs(static_cast<double>(sum)));
        }
        truth[row] = static_cast<double>(sum);
      }
      for (bool columns : {false, true}) {
        const Tensor data_of_run = columns ? x.t().contiguous() : x;
        const auto f = [&](const Tensor& t) { return t.sum(columns ? 0 : 1); };
        const auto compiled = compile(Function(f), Options{.backend = "llvm"});
        const auto error = [&](const Tensor& got) {
          return (got - truth).abs().max().item<double>() / (largest * 0x1p-52);
        };
        EXPECT_LE(error(compiled(data_of_run)), 2 * error(f(data_of_run)) + 4) << columns;
      }
    }
  }
}

// Eager's group_norm of equal numbers is off by a rounding, which decides the slope of the clamp.
TEST(SumAccuracy, TheSlopeAtABoundIsThatOfTheValueAsItIsRounded) {
  const auto f = [](const Tensor& x) {
    return (at::group_norm(at::full({2, 4, 1}, -1.5), 2, x, x).abs() + 0.5).clamp_max(2);
  };
  const auto compiled = compile(Function(f), Options{.backend = "llvm"});
  const Tensor x = torch::full({4}, -1.5, torch::requires_grad());
  const auto slope = [&](const Function& function) {
    return torch::autograd::grad({function(x).sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(compiled(x), torch::full({2, 4, 1}, 2.0)));
  EXPECT_TRUE(at::equal(slope(compiled), torch::full({4}, -2.0)));
  const Tensor eager = slope(f);
  EXPECT_TRUE(eager.eq(0).logical_or(eager.add(2).abs().lt(1e-2)).all().item<bool>()) << eager;
}

// Infinities and zeros pass through sums in blocks as they pass through additions.
TEST(SumAccuracy, SpecialValuesOfLongSums) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto compiled =
      compile([](const Tensor& x) { return x.sum(1); }, Options{.backend = "llvm"});
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Tensor x = torch::ones({6, 5000}, dtype);
    x[0][77] = infinity;
    x[1][4999] = -infinity;
    x[2][3] = std::numeric_limits<float>::quiet_NaN();
    x[3][3] = infinity;
    x[3][2000] = -infinity;
    x[4].zero_();
    const Tensor expected = x.sum(1), found = compiled(x);
    EXPECT_TRUE(at::allclose(found, expected, 0, 0, true)) << found << expected;
  }
}

}  // namespace
}  // namespace tandem
