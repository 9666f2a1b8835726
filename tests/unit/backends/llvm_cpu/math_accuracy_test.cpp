#include "base/error.h"
#include "support/paths.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <bit>
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

// How far the generated functions are from the truth, beside eager's, over floats of the whole
// range. The page docs/reference/math-accuracy.md has the figures and is checked here.
namespace tandem {
namespace {

using loops::Kernel;

struct Function {
  const char* name;
  double low, high;  // where it is sampled
  double (*truth)(double);
  std::function<at::Tensor(const at::Tensor&)> eager;
};

const std::vector<Function>& functions() {
  using T = const at::Tensor&;
  static const auto* list = new std::vector<Function>{
      {"exp", -105, 90, [](double x) { return std::exp(x); }, [](T x) { return at::exp(x); }},
      {"exp2", -151, 129, [](double x) { return std::exp2(x); }, [](T x) { return at::exp2(x); }},
      {"expm1", -30, 90, [](double x) { return std::expm1(x); }, [](T x) { return at::expm1(x); }},
      {"log", 0, 3e38, [](double x) { return std::log(x); }, [](T x) { return at::log(x); }},
      {"log2", 0, 3e38, [](double x) { return std::log2(x); }, [](T x) { return at::log2(x); }},
      {"log10", 0, 3e38, [](double x) { return std::log10(x); }, [](T x) { return at::log10(x); }},
      {"log1p", -1, 3e38, [](double x) { return std::log1p(x); }, [](T x) { return at::log1p(x); }},
      {"sin", -20000, 20000, [](double x) { return std::sin(x); }, [](T x) { return at::sin(x); }},
      {"cos", -20000, 20000, [](double x) { return std::cos(x); }, [](T x) { return at::cos(x); }},
      {"tanh", -20, 20, [](double x) { return std::tanh(x); }, [](T x) { return at::tanh(x); }},
      {"erf", -5, 5, [](double x) { return std::erf(x); }, [](T x) { return at::erf(x); }},
      {"sigmoid", -88, 88, [](double x) { return 1 / (1 + std::exp(-x)); },
       [](T x) { return at::sigmoid(x); }},
      {"sqrt", 0, 3e38, [](double x) { return std::sqrt(x); }, [](T x) { return at::sqrt(x); }},
      {"rsqrt", 0, 3e38, [](double x) { return 1 / std::sqrt(x); },
       [](T x) { return at::rsqrt(x); }},
  };
  return *list;
}

/// Floats of [low, high], evenly by their place in the order of all floats, so that all exponents
/// occur.
std::vector<float> samples(double low, double high, size_t count) {
  const auto place = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return static_cast<int64_t>(bits >= 0 ? bits : std::numeric_limits<int32_t>::min() - bits);
  };
  const int64_t first = place(static_cast<float>(low)), last = place(static_cast<float>(high));
  std::vector<float> result;
  for (size_t i = 0; i < count; ++i) {
    const int64_t at =
        first + static_cast<int64_t>(static_cast<double>(last - first) * static_cast<double>(i) /
                                     static_cast<double>(count - 1));
    const auto bits = static_cast<int32_t>(at >= 0 ? at : std::numeric_limits<int32_t>::min() - at);
    result.push_back(std::bit_cast<float>(bits));
  }
  // Most arguments of a network are of moderate size.
  const double near_low = std::max(low, -8.0), near_high = std::min(high, 8.0);
  for (size_t i = 0; i < count; ++i)
    result.push_back(static_cast<float>(near_low + (near_high - near_low) * static_cast<double>(i) /
                                                       static_cast<double>(count)));
  return result;
}

double distance_in_units(float got, double truth) {
  const auto nearest = static_cast<float>(truth);
  if (got == nearest || (std::isnan(got) && std::isnan(nearest))) {
    if (!std::isfinite(nearest)) return 0;
  } else if (!std::isfinite(got) || !std::isfinite(nearest)) {
    // Infinity counts as the float that would follow the largest.
    const double limit = 0x1p128;
    if (std::isnan(got) || std::isnan(nearest)) return std::numeric_limits<double>::infinity();
    const double have = std::isinf(got) ? std::copysign(limit, got) : static_cast<double>(got);
    return std::abs(have - std::clamp(truth, -limit, limit)) / 0x1p104;
  }
  const float size = std::abs(nearest);
  const double unit =
      std::isfinite(std::nextafter(size, HUGE_VALF))
          ? static_cast<double>(std::nextafter(size, HUGE_VALF)) - static_cast<double>(size)
          : 0x1p104;
  return std::abs(static_cast<double>(got) - truth) / unit;
}

struct Error {
  double largest = 0, sum = 0;
  float at = 0;
  size_t count = 0;
};

Error error_of(const Function& function, const std::vector<float>& x, const float* y) {
  Error error;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = distance_in_units(y[i], function.truth(static_cast<double>(x[i])));
    if (off > error.largest) error = {off, error.sum, x[i], error.count};
    error.sum += std::isfinite(off) ? off : 0;
    ++error.count;
  }
  return error;
}

std::vector<float> generated(const Function& function, const std::vector<float>& x,
                             backends::llvm_cpu::InstructionSet set) {
  const std::string n = std::to_string(x.size());
  const Kernel kernel = loops::parse_kernel(
      base::str("kernel k {\n in x: f32[", n, "]\n out y: f32[", n, "]\n kept i: ", n,
                "\n outer {\n v0: f32 = load x[i]\n v1: f32 = ", function.name,
                " v0\n store y[i], v1\n }\n}"));
  const Kernel* const kernels[] = {&kernel};
  const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(kernels);
  std::vector<float> y(x.size());
  void* const buffers[] = {const_cast<float*>(x.data()), y.data()};
  made[0].kernel->launch(buffers, test::kHostStream);
  return y;
}

/// Function -> set of instructions (or "eager") -> largest error, from the page.
std::map<std::string, std::map<std::string, double>> documented() {
  std::ifstream page(std::string(test::kTestsDir) + "/../docs/reference/math-accuracy.md");
  std::map<std::string, std::map<std::string, double>> table;
  for (std::string line; std::getline(page, line);) {
    std::istringstream cells(line);
    std::string bar, name;
    double eager = 0, avx512 = 0, avx2 = 0, baseline = 0;
    if (!(cells >> bar >> name >> bar >> eager >> bar >> avx512 >> bar >> avx2 >> bar >> baseline))
      continue;
    table[name] = {{"eager", eager}, {"avx512", avx512}, {"avx2", avx2}, {"baseline", baseline}};
  }
  return table;
}

TEST(VectorMath, IsAsAccurateAsItsPageSays) {
  const auto page = documented();
  const bool print = std::getenv("TANDEM_PRINT_ACCURACY") != nullptr;
  for (const Function& function : functions()) {
    SCOPED_TRACE(function.name);
    const std::vector<float> x = samples(function.low, function.high, print ? 4000000 : 150000);
    const at::Tensor eager = function.eager(
        torch::from_blob(const_cast<float*>(x.data()), {static_cast<int64_t>(x.size())}));
    const Error eagers = error_of(function, x, eager.data_ptr<float>());
    std::string row = base::str("| ", function.name, " | ", std::ceil(eagers.largest * 10) / 10);
    auto sets = test::instruction_sets();
    for (auto set = sets.rbegin(); set != sets.rend(); ++set) {
      const Error ours = error_of(function, x, generated(function, x, *set).data());
      row += base::str(" | ", std::ceil(ours.largest * 10) / 10);
      // At most 2 units further from the truth than eager.
      EXPECT_LE(ours.largest, eagers.largest + 2) << name(*set) << " at " << ours.at;
      if (print) continue;
      ASSERT_TRUE(page.contains(function.name));
      EXPECT_LE(ours.largest, page.at(function.name).at(std::string(name(*set))))
          << "at " << ours.at;
    }
    if (print) std::printf("%s |\n", row.c_str());
  }
}

TEST(VectorMath, SpecialValuesAreLibms) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F,    -0.0F,  kInfinity, -kInfinity, std::nanf(""), 1e-45F,
                                -1e-45F, 1e-38F, 3.4e38F,   -3.4e38F,   1.0F,          -1.0F,
                                -2.0F,   0.5F,   1e10F,     -1e10F};
  for (const Function& function : functions()) {
    for (auto set : test::instruction_sets()) {
      const std::vector<float> y = generated(function, x, set);
      for (size_t i = 0; i < x.size(); ++i) {
        const auto expected = static_cast<float>(function.truth(static_cast<double>(x[i])));
        SCOPED_TRACE(base::str(name(set), " ", function.name, "(", x[i], ")"));
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(y[i])) << y[i];
        } else if (std::isinf(expected) || expected == 0) {
          EXPECT_EQ(y[i], expected);
          EXPECT_EQ(std::signbit(y[i]), std::signbit(expected));
        } else {
          EXPECT_LE(distance_in_units(y[i], function.truth(static_cast<double>(x[i]))), 3.5)
              << y[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
