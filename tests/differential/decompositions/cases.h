#pragma once

#include "unit/ops/eager_judge.h"

#include <functional>
#include <string>
#include <vector>

/// Ways to call every op that has a decomposition.
namespace tandem::test {

using ops::Arguments;

/// Makes operands of one dtype, the same in every run; layouts are drawn, too.
class Draw {
 public:
  Draw(uint64_t seed, at::ScalarType dtype) : random(seed), dtype(dtype) {}

  ops::Random random;
  at::ScalarType dtype;
  // normal() gives NaN, infinities, zeros of both signs, large numbers; whole vectors of them,
  // since eager's kernels treat a NaN otherwise elsewhere.
  bool special = false;

  int64_t integer(int64_t low, int64_t high) { return random.integer(low, high); }
  bool coin() { return random.coin(); }
  /// Normal values, some of them exactly -3, 0, 0.5 or 3, where formulas change.
  at::Tensor normal(std::vector<int64_t> sizes);
  at::Tensor uniform(std::vector<int64_t> sizes, double low = 0, double high = 1);
  at::Tensor like(const at::Tensor& tensor) { return normal(tensor.sizes().vec()); }
  std::vector<int64_t> sizes(int64_t rank) {
    return special ? std::vector<int64_t>{4, 64} : random.sizes(rank, 2);
  }
  std::vector<int64_t> sizes() { return sizes(integer(0, 4)); }
  /// Half of the time undefined.
  at::Tensor maybe(const at::Tensor& tensor) { return random.maybe(tensor); }
};

struct DecompositionCase {
  std::string op;
  std::function<Arguments(Draw&)> arguments;
  bool bfloat16 = true;               // eager has a kernel for it
  std::vector<size_t> unspecified{};  // results that eager leaves uninitialised
};

std::vector<DecompositionCase> activation_cases();
std::vector<DecompositionCase> loss_cases();
std::vector<DecompositionCase> norm_cases();
std::vector<DecompositionCase> other_cases();

}  // namespace tandem::test
