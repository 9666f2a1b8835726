#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tandem::shapes {

/// A running hash that is the same in every process and on every machine: no address, no seed, no
/// std::hash. Order matters.
class StableHash {
 public:
  StableHash& add(uint64_t word) {
    state_ = mix(state_ ^ mix(word + kOdd));
    return *this;
  }
  StableHash& add(std::string_view bytes) {
    add(bytes.size());
    // Shifts, not memcpy: the same number on either byte order.
    uint64_t word = 0;
    int filled = 0;
    for (char c : bytes) {
      word = word << 8 | static_cast<uint8_t>(c);
      if (++filled == 8) {
        add(word);
        word = 0;
        filled = 0;
      }
    }
    if (filled > 0) add(word);
    return *this;
  }
  StableHash& add_double(double number) { return add(std::bit_cast<uint64_t>(number)); }

  uint64_t value() const { return state_; }

 private:
  static constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;

  // A bijection that spreads every bit over all others (the finaliser of splitmix64).
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t state_ = kOdd;
};

}  // namespace tandem::shapes
