#include "tandem/ir/operand.h"

#include <bit>
#include <cstdint>

namespace tandem::ir {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
bool same(double a, double b) { return same_bits(a, b); }
bool same(const std::complex<double>& a, const std::complex<double>& b) {
  return same_bits(a.real(), b.real()) && same_bits(a.imag(), b.imag());
}
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace

bool operator==(const Operand& a, const Operand& b) {
  if (a.data.index() != b.data.index()) return false;
  return std::visit(
      [&](const auto& data) {
        return same(data, std::get<std::remove_cvref_t<decltype(data)>>(b.data));
      },
      a.data);
}

}  // namespace tandem::ir
