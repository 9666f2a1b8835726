#include "shapes/size_samples.h"

#include <algorithm>
#include <utility>

namespace tandem::shapes {
namespace {

/// Equations between integers are solved modulo a prime, where nothing overflows and nothing is
/// rounded. What comes out is tried on the samples, so a solution that only holds there is not
/// believed.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
/// Coefficients beyond that are none.
constexpr int64_t kLargest = int64_t{1} << 40;
/// Pairs of more symbols than that are not tried.
constexpr size_t kMostInPairs = 32;
constexpr int64_t kLargestDivisor = 16;

uint64_t to_field(int64_t number) {
  const int64_t rest = number % static_cast<int64_t>(kPrime);
  return rest < 0 ? static_cast<uint64_t>(rest + static_cast<int64_t>(kPrime))
                  : static_cast<uint64_t>(rest);
}

std::optional<int64_t> from_field(uint64_t number) {
  if (number <= static_cast<uint64_t>(kLargest)) return static_cast<int64_t>(number);
  if (kPrime - number <= static_cast<uint64_t>(kLargest))
    return -static_cast<int64_t>(kPrime - number);
  return std::nullopt;
}

uint64_t add(uint64_t a, uint64_t b) { return (a + b) % kPrime; }
uint64_t subtract(uint64_t a, uint64_t b) { return (a + kPrime - b) % kPrime; }
uint64_t multiply(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % kPrime);
}

uint64_t inverse_of(uint64_t number) {
  uint64_t result = 1;
  for (uint64_t exponent = kPrime - 2; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = multiply(result, number);
    number = multiply(number, number);
  }
  return result;
}

int64_t rounded_down(int64_t a, int64_t b) { return floordiv(Size(a), Size(b)).value(); }

/// Of small numbers; nothing where the product does not fit.
std::optional<int64_t> times(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace

SizeSamples::SizeSamples(std::vector<SampledSymbol> symbols, std::vector<std::vector<int64_t>> rows)
    : symbols_(std::move(symbols)), rows_(std::move(rows)) {
  if (rows_.empty()) {
    tell_apart_ = symbols_.empty();
    return;
  }
  choose_rows();
}

/// Takes the runs in order as long as each says something that those before do not, and inverts
/// what they make up.
void SizeSamples::choose_rows() {
  std::vector<std::vector<uint64_t>> matrix;
  for (const std::vector<int64_t>& row : rows_) {
    std::vector<uint64_t>& line = matrix.emplace_back(1, 1);
    for (int64_t value : row) line.push_back(to_field(value));
  }
  std::vector<std::vector<uint64_t>> reduced = matrix;
  std::vector<bool> is_chosen(rows_.size(), false);
  for (size_t column = 0; column < symbols_.size() + 1; ++column) {
    size_t pivot = 0;
    while (pivot < rows_.size() && (is_chosen[pivot] || reduced[pivot][column] == 0)) ++pivot;
    if (pivot == rows_.size()) {
      // It is a number that never changes, or one that the other symbols decide.
      const SampledSymbol& symbol = symbols_[column - 1];
      tell_apart_ = tell_apart_ && symbol.max == symbol.min;
      continue;
    }
    is_chosen[pivot] = true;
    chosen_rows_.push_back(pivot);
    chosen_columns_.push_back(column);
    const uint64_t inverse = inverse_of(reduced[pivot][column]);
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (is_chosen[row] || reduced[row][column] == 0) continue;
      const uint64_t factor = multiply(reduced[row][column], inverse);
      for (size_t i = column; i < reduced[row].size(); ++i)
        reduced[row][i] = subtract(reduced[row][i], multiply(factor, reduced[pivot][i]));
    }
  }
  const size_t size = chosen_rows_.size();
  std::vector<std::vector<uint64_t>> left(size, std::vector<uint64_t>(size));
  inverse_.assign(size, std::vector<uint64_t>(size, 0));
  for (size_t i = 0; i < size; ++i) {
    inverse_[i][i] = 1;
    for (size_t j = 0; j < size; ++j) left[i][j] = matrix[chosen_rows_[i]][chosen_columns_[j]];
  }
  for (size_t column = 0; column < size; ++column) {
    size_t pivot = column;
    while (left[pivot][column] == 0) ++pivot;
    std::swap(left[pivot], left[column]);
    std::swap(inverse_[pivot], inverse_[column]);
    const uint64_t scale = inverse_of(left[column][column]);
    for (size_t i = 0; i < size; ++i) {
      left[column][i] = multiply(left[column][i], scale);
      inverse_[column][i] = multiply(inverse_[column][i], scale);
    }
    for (size_t row = 0; row < size; ++row) {
      const uint64_t factor = left[row][column];
      if (row == column || factor == 0) continue;
      for (size_t i = 0; i < size; ++i) {
        left[row][i] = subtract(left[row][i], multiply(factor, left[column][i]));
        inverse_[row][i] = subtract(inverse_[row][i], multiply(factor, inverse_[column][i]));
      }
    }
  }
}

std::optional<Size> SizeSamples::expression(std::span<const int64_t> values) const {
  if (std::ranges::all_of(values, [&](int64_t value) { return value == values[0]; }))
    return Size(values[0]);
  if (auto found = sum(values)) return found;
  if (auto found = product(values)) return found;
  if (auto found = bounded(values)) return found;
  return divided(values);
}

std::optional<Size> SizeSamples::sum(std::span<const int64_t> values) const {
  Size result;
  std::vector<int64_t> at(rows_.size(), 0);
  for (size_t i = 0; i < chosen_columns_.size(); ++i) {
    uint64_t number = 0;
    for (size_t j = 0; j < chosen_rows_.size(); ++j)
      number = add(number, multiply(inverse_[i][j], to_field(values[chosen_rows_[j]])));
    const std::optional<int64_t> coefficient = from_field(number);
    if (!coefficient) return std::nullopt;
    if (*coefficient == 0) continue;
    const size_t column = chosen_columns_[i];
    result = result +
             Size(*coefficient) * (column == 0 ? Size(1) : Size::symbol(symbols_[column - 1].name));
    for (size_t k = 0; k < rows_.size(); ++k) {
      const auto part = times(*coefficient, column == 0 ? 1 : rows_[k][column - 1]);
      if (!part || __builtin_add_overflow(at[k], *part, &at[k])) return std::nullopt;
    }
  }
  return std::ranges::equal(at, values) ? std::optional(result) : std::nullopt;
}

std::optional<Size> SizeSamples::product(std::span<const int64_t> values) const {
  if (symbols_.size() > kMostInPairs) return std::nullopt;
  for (size_t i = 0; i < symbols_.size(); ++i) {
    for (size_t j = i; j < symbols_.size(); ++j) {
      std::optional<int64_t> factor;
      bool fits = true;
      for (size_t k = 0; k < rows_.size() && fits; ++k) {
        const auto pair = times(rows_[k][i], rows_[k][j]);
        if (!pair) {
          fits = false;
        } else if (*pair == 0) {
          fits = values[k] == 0;
        } else if (!factor) {
          factor = values[k] / *pair;
          fits = values[k] % *pair == 0;
        } else {
          fits = times(*factor, *pair) == values[k];
        }
      }
      if (fits && factor) {
        return Size(*factor) * Size::symbol(symbols_[i].name) * Size::symbol(symbols_[j].name);
      }
    }
  }
  return std::nullopt;
}

std::optional<Size> SizeSamples::bounded(std::span<const int64_t> values) const {
  const auto [least, most] = std::ranges::minmax(values);
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const Size symbol = Size::symbol(symbols_[i].name);
    bool below = true, above = true;
    for (size_t k = 0; k < rows_.size(); ++k) {
      below = below && values[k] == std::min(rows_[k][i], most);
      above = above && values[k] == std::max(rows_[k][i], least);
    }
    if (below) return min(symbol, Size(most));
    if (above) return max(symbol, Size(least));
  }
  return std::nullopt;
}

std::optional<Size> SizeSamples::divided(std::span<const int64_t> values) const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    for (int64_t divisor = 2; divisor <= kLargestDivisor; ++divisor) {
      for (int64_t shift = 0; shift < divisor; ++shift) {
        bool fits = true;
        for (size_t k = 0; k < rows_.size() && fits; ++k)
          fits = values[k] == rounded_down(rows_[k][i] + shift, divisor);
        if (fits) return floordiv(Size::symbol(symbols_[i].name) + Size(shift), Size(divisor));
      }
    }
  }
  return std::nullopt;
}

}  // namespace tandem::shapes
