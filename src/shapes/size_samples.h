#pragma once

#include "tandem/shapes/size.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::shapes {

/// A symbol and the values that it can have.
struct SampledSymbol {
  std::string name;
  int64_t min = 0;
  std::optional<int64_t> max{};
};

/// Values of symbols at several runs of the same program, drawn independently of each other. From
/// what another number was at the same runs they tell how it follows from the symbols.
///
/// An expression is believed if it is of a small family and gives every sample: a sum of multiples
/// of symbols, a multiple of a product of two, a symbol divided, or a symbol with a bound. There
/// are more samples than such an expression has numbers to choose, so a false one would have to
/// agree with the true one by chance several times over.
class SizeSamples {
 public:
  /// One row per run, one value per symbol.
  SizeSamples(std::vector<SampledSymbol> symbols, std::vector<std::vector<int64_t>> rows);

  size_t count() const { return rows_.size(); }
  /// Whether there are enough runs, different enough, to tell any two sums of multiples apart.
  bool tell_apart() const { return tell_apart_; }
  /// `values`: one per run. Nullopt: nothing of the family fits.
  std::optional<Size> expression(std::span<const int64_t> values) const;

 private:
  std::optional<Size> sum(std::span<const int64_t> values) const;
  std::optional<Size> product(std::span<const int64_t> values) const;
  std::optional<Size> bounded(std::span<const int64_t> values) const;
  std::optional<Size> divided(std::span<const int64_t> values) const;
  void choose_rows();

  std::vector<SampledSymbol> symbols_;
  std::vector<std::vector<int64_t>> rows_;
  bool tell_apart_ = true;
  // A square part of the samples, with a column of ones in front, and its inverse.
  std::vector<size_t> chosen_rows_, chosen_columns_;
  std::vector<std::vector<uint64_t>> inverse_;
};

}  // namespace tandem::shapes
