#pragma once

#include "tandem/export.h"

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::shapes {

struct Term;

/// An integer expression: the size or stride of a tensor, an integer operand.
///
/// A constant costs no allocation. Anything else is an immutable, shared, canonical sum of products
/// over symbols, so equal expressions compare equal whatever way they were built. What leaves 64
/// bits on the way is a UserError. Text: `12`, `s0`, `4*s0`, `s0*s1 + 3`, `floordiv(s0, 2)`,
/// `mod(s0, 4)`, `min(a, b)`, `max(a, b)`.
class TANDEM_API Size {
 public:
  Size() = default;
  Size(int64_t constant) : constant_(constant) {}  // NOLINT: a constant is a Size
  static Size symbol(std::string name);

  bool is_constant() const { return terms_ == nullptr; }
  /// The constant; an InternalError if it is none.
  int64_t value() const;
  std::optional<int64_t> maybe_value() const;
  /// Every symbol it mentions, sorted, without repeats.
  std::vector<std::string> symbols() const;

  friend TANDEM_API Size operator+(const Size& a, const Size& b);
  friend TANDEM_API Size operator-(const Size& a, const Size& b);
  friend TANDEM_API Size operator*(const Size& a, const Size& b);
  friend TANDEM_API Size floordiv(const Size& a, const Size& b);
  friend TANDEM_API Size mod(const Size& a, const Size& b);
  friend TANDEM_API Size min(const Size& a, const Size& b);
  friend TANDEM_API Size max(const Size& a, const Size& b);
  friend TANDEM_API bool operator==(const Size& a, const Size& b);

  uint64_t hash() const;
  std::string to_string() const;
  /// Reads what to_string writes, from the front of `text`, and removes it; a UserError if it
  /// cannot.
  static Size parse(std::string_view& text);

 private:
  friend struct SizeOps;  // size.cpp: arithmetic on the canonical form
  int64_t constant_ = 0;
  std::shared_ptr<const std::vector<Term>> terms_;  // null: a constant
};

/// Towards minus infinity, as Python's `//` and `%`; a UserError for a divisor of zero.
TANDEM_API Size floordiv(const Size& a, const Size& b);
TANDEM_API Size mod(const Size& a, const Size& b);
TANDEM_API Size min(const Size& a, const Size& b);
TANDEM_API Size max(const Size& a, const Size& b);

TANDEM_API std::ostream& operator<<(std::ostream& out, const Size& size);

}  // namespace tandem::shapes
