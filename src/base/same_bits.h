#pragma once

#include <bit>
#include <complex>
#include <cstdint>
#include <variant>
#include <vector>

namespace tandem::base {

/// Bit for bit where there are floating numbers: 0.0 differs from -0.0, and a NaN equals itself.
/// Anything else by its own equality.
template <class T>
bool same_bits(const T& a, const T& b) {
  return a == b;
}
inline bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}
inline bool same_bits(const std::complex<double>& a, const std::complex<double>& b) {
  return same_bits(a.real(), b.real()) && same_bits(a.imag(), b.imag());
}
inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}
template <class... T>
bool same_bits(const std::variant<T...>& a, const std::variant<T...>& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& value) {
        return same_bits(value, std::get<std::remove_cvref_t<decltype(value)>>(b));
      },
      a);
}

}  // namespace tandem::base
