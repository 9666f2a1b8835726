#pragma once

#include <cstdint>

namespace tandem::base {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint64_t kPhiloxFactor = 0xD256D193, kPhiloxKeyStep = 0x9E3779B9;

/// 64 random bits that depend on nothing but a counter and a key: Philox 2x32 of Salmon, Moraes,
/// Dror and Shaw (2011). It has 32 bits of key; the rest of ours goes into the counter.
constexpr uint64_t philox(uint64_t counter, uint64_t key) {
  uint64_t x = counter & 0xffffffff, y = (counter >> 32) ^ (key >> 32);
  uint64_t round_key = key & 0xffffffff;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product = x * kPhiloxFactor;
    x = (product >> 32) ^ y ^ round_key;
    y = product & 0xffffffff;
    round_key = (round_key + kPhiloxKeyStep) & 0xffffffff;
  }
  return x | y << 32;
}

}  // namespace tandem::base
