#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tandem::fuzz {

/// The decisions of the generator. The same numbers on every machine, unlike the distributions of
/// the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 0x1234567) {}

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// In [0, limit).
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(next() % static_cast<uint64_t>(limit));
  }
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  bool percent(int64_t share) { return below(100) < share; }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace tandem::fuzz
