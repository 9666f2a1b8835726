#include "tandem/shapes/size.h"

#include "base/error.h"
#include "shapes/evaluate.h"
#include "shapes/stable_hash.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <limits>
#include <ostream>
#include <utility>

namespace tandem::shapes {

/// A symbol, or a function that the sums of products cannot see through.
struct Atom {
  enum class Kind : uint8_t { Symbol, FloorDiv, Mod, Min, Max };
  Kind kind = Kind::Symbol;
  std::string name{};  // of a symbol
  Size a{}, b{};       // of a function
};
using AtomPtr = std::shared_ptr<const Atom>;

/// A product with its coefficient. Atoms are sorted, one entry per power.
struct Term {
  int64_t coefficient = 1;
  std::vector<AtomPtr> atoms{};
};
using Terms = std::vector<Term>;

/// Canonical form: terms sorted (higher degree first, then by their atoms), no two with the same
/// atoms, no coefficient zero, null instead of an empty list; the constant is kept apart.
struct SizeOps {
  static const Terms& terms(const Size& size) {
    static const Terms kNone;
    return size.terms_ ? *size.terms_ : kNone;
  }
  static int64_t constant(const Size& size) { return size.constant_; }
  static bool same_terms(const Size& a, const Size& b);

  /// Sorts, merges and drops zeros.
  static Size make(Terms terms, int64_t constant);
  static Size of_atom(Atom atom) {
    Terms terms(1);
    terms[0].atoms.push_back(std::make_shared<const Atom>(std::move(atom)));
    return make(std::move(terms), 0);
  }
  static Size function(Atom::Kind kind, const Size& a, const Size& b) {
    return of_atom({kind, {}, a, b});
  }
  static std::strong_ordering compare(const Size& a, const Size& b);
};

namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

struct FunctionWord {
  Atom::Kind kind;
  std::string_view word;
  Size (*apply)(const Size&, const Size&);
};
constexpr FunctionWord kFunctions[] = {{Atom::Kind::FloorDiv, "floordiv", floordiv},
                                       {Atom::Kind::Mod, "mod", mod},
                                       {Atom::Kind::Min, "min", min},
                                       {Atom::Kind::Max, "max", max}};

[[noreturn]] void raise_overflow(int64_t a, const char* operation, int64_t b) {
  throw UserError("shapes", base::str("a size does not fit into 64 bits: ", a, " ", operation, " ",
                                      b, "\n  remedy: use smaller tensors"));
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) raise_overflow(a, "+", b);
  return sum;
}

int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) raise_overflow(a, "*", b);
  return product;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (a == kMin && b == -1) raise_overflow(a, "/", b);
  int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;  // kMin % -1 traps
  int64_t rest = a % b;
  return rest + (rest != 0 && (rest < 0) != (b < 0) ? b : 0);
}

void require_divisor(const Size& a, const Size& b) {
  TANDEM_REQUIRE(b.maybe_value() != 0, "shapes", "a size is divided by zero: ", a.to_string());
}

std::strong_ordering compare(const Atom& a, const Atom& b) {
  if (&a == &b) return std::strong_ordering::equal;
  if (auto order = a.kind <=> b.kind; order != 0) return order;
  if (auto order = a.name.compare(b.name) <=> 0; order != 0) return order;
  if (auto order = SizeOps::compare(a.a, b.a); order != 0) return order;
  return SizeOps::compare(a.b, b.b);
}

std::strong_ordering compare_atoms(const Term& a, const Term& b) {
  if (auto order = b.atoms.size() <=> a.atoms.size(); order != 0) return order;
  for (size_t i = 0; i < a.atoms.size(); ++i) {
    if (auto order = compare(*a.atoms[i], *b.atoms[i]); order != 0) return order;
  }
  return std::strong_ordering::equal;
}

Term multiply(const Term& a, const Term& b) {
  Term product{checked_multiply(a.coefficient, b.coefficient), a.atoms};
  product.atoms.insert(product.atoms.end(), b.atoms.begin(), b.atoms.end());
  std::sort(product.atoms.begin(), product.atoms.end(),
            [](const AtomPtr& x, const AtomPtr& y) { return compare(*x, *y) < 0; });
  return product;
}

void collect_symbols(const Size& size, std::vector<std::string>& names) {
  for (const Term& term : SizeOps::terms(size)) {
    for (const AtomPtr& atom : term.atoms) {
      if (atom->kind == Atom::Kind::Symbol) {
        names.push_back(atom->name);
      } else {
        collect_symbols(atom->a, names);
        collect_symbols(atom->b, names);
      }
    }
  }
}

void append(std::string& out, const Size& size);

void append(std::string& out, const Atom& atom) {
  if (atom.kind == Atom::Kind::Symbol) {
    out += atom.name;
    return;
  }
  for (const FunctionWord& function : kFunctions) {
    if (function.kind == atom.kind) out += function.word;
  }
  out += '(';
  append(out, atom.a);
  out += ", ";
  append(out, atom.b);
  out += ')';
}

/// Between terms ` + ` or ` - `; the sign of the first is part of it.
void append_sign(std::string& out, bool first, bool negative) {
  if (first) {
    if (negative) out += '-';
  } else {
    out += negative ? " - " : " + ";
  }
}

void append_magnitude(std::string& out, int64_t number) {
  out +=
      std::to_string(number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number));
}

void append(std::string& out, const Size& size) {
  bool first = true;
  for (const Term& term : SizeOps::terms(size)) {
    append_sign(out, first, term.coefficient < 0);
    first = false;
    bool unit = term.coefficient == 1 || term.coefficient == -1;
    if (!unit) append_magnitude(out, term.coefficient);
    for (size_t i = 0; i < term.atoms.size(); ++i) {
      if (i > 0 || !unit) out += '*';
      append(out, *term.atoms[i]);
    }
  }
  int64_t constant = SizeOps::constant(size);
  if (!first && constant == 0) return;
  append_sign(out, first, constant < 0);
  append_magnitude(out, constant);
}

/// expression = ["-"] product {("+" | "-") product};  product = factor {"*" factor};
/// factor = number | symbol | function "(" expression "," expression ")" | "(" expression ")".
class Reader {
 public:
  explicit Reader(std::string_view& text) : text_(text) {}

  Size expression() {
    Size sum = take('-') ? product(true) : product(false);
    while (true) {
      if (take('+')) {
        sum = sum + product(false);
      } else if (take('-')) {
        sum = sum + product(true);
      } else {
        return sum;
      }
    }
  }

 private:
  Size product(bool negative) {
    Size result = factor(negative);
    while (take('*')) result = result * factor(false);
    return result;
  }

  Size factor(bool negative) {
    skip_spaces();
    if (!text_.empty() && text_[0] >= '0' && text_[0] <= '9') return number(negative);
    Size result = take('(') ? closed(expression()) : named();
    return negative ? Size(0) - result : result;
  }

  Size number(bool negative) {
    // With the sign, since the smallest integer has no positive counterpart.
    uint64_t magnitude = 0;
    auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), magnitude);
    uint64_t limit =
        static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1 : 0);
    TANDEM_REQUIRE(error == std::errc() && magnitude <= limit, "shapes",
                   "expected an integer of 64 bits, got '", negative ? "-" : "",
                   text_.substr(0, static_cast<size_t>(end - text_.data())), "'");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return static_cast<int64_t>(negative ? -magnitude : magnitude);
  }

  Size named() {
    size_t length = 0;
    while (length < text_.size() && is_symbol_char(text_[length])) ++length;
    TANDEM_REQUIRE(length > 0, "shapes", "expected a size, got ", rest());
    std::string_view word = text_.substr(0, length);
    text_.remove_prefix(length);
    for (const FunctionWord& function : kFunctions) {
      if (function.word != word || !take('(')) continue;
      Size a = expression();
      TANDEM_REQUIRE(take(','), "shapes", "expected ',' in ", word, ", got ", rest());
      return function.apply(a, closed(expression()));
    }
    return Size::symbol(std::string(word));
  }

  Size closed(Size size) {
    TANDEM_REQUIRE(take(')'), "shapes", "expected ')', got ", rest());
    return size;
  }

  static bool is_symbol_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }

  void skip_spaces() {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
  }

  /// Leaves spaces alone that no sign follows: they belong to whatever comes next.
  bool take(char sign) {
    size_t at = text_.find_first_not_of(' ');
    if (at == std::string_view::npos || text_[at] != sign) return false;
    text_.remove_prefix(at + 1);
    return true;
  }

  std::string rest() const {
    return text_.empty() ? "the end" : base::str("'", text_.substr(0, 1), "'");
  }

  std::string_view& text_;
};

}  // namespace

Size SizeOps::make(Terms terms, int64_t constant) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return compare_atoms(a, b) < 0; });
  size_t kept = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (kept > 0 && compare_atoms(terms[kept - 1], terms[i]) == 0) {
      terms[kept - 1].coefficient = checked_add(terms[kept - 1].coefficient, terms[i].coefficient);
    } else {
      if (kept > 0 && terms[kept - 1].coefficient == 0) --kept;
      if (kept != i) terms[kept] = std::move(terms[i]);
      ++kept;
    }
  }
  if (kept > 0 && terms[kept - 1].coefficient == 0) --kept;
  terms.resize(kept);
  Size size(constant);
  if (!terms.empty()) size.terms_ = std::make_shared<const Terms>(std::move(terms));
  return size;
}

std::strong_ordering SizeOps::compare(const Size& a, const Size& b) {
  if (a.terms_ != b.terms_) {
    const Terms& x = terms(a);
    const Terms& y = terms(b);
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (auto order = compare_atoms(x[i], y[i]); order != 0) return order;
      if (auto order = x[i].coefficient <=> y[i].coefficient; order != 0) return order;
    }
    if (auto order = x.size() <=> y.size(); order != 0) return order;
  }
  return a.constant_ <=> b.constant_;
}

bool SizeOps::same_terms(const Size& a, const Size& b) {
  if (a.terms_ == b.terms_) return true;
  Size x = a;
  Size y = b;
  x.constant_ = y.constant_ = 0;
  return compare(x, y) == 0;
}

Size Size::symbol(std::string name) {
  return SizeOps::of_atom({Atom::Kind::Symbol, std::move(name)});
}

int64_t Size::value() const {
  TANDEM_CHECK(is_constant(), "shapes", "expected a constant size, got ", to_string());
  return constant_;
}

std::optional<int64_t> Size::maybe_value() const {
  if (!is_constant()) return std::nullopt;
  return constant_;
}

std::vector<std::string> Size::symbols() const {
  std::vector<std::string> names;
  collect_symbols(*this, names);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string symbol_name(const Size& size) {
  const Terms& terms = SizeOps::terms(size);
  const bool is_symbol = SizeOps::constant(size) == 0 && terms.size() == 1 &&
                         terms[0].coefficient == 1 && terms[0].atoms.size() == 1 &&
                         terms[0].atoms[0]->kind == Atom::Kind::Symbol;
  return is_symbol ? terms[0].atoms[0]->name : std::string();
}

int64_t evaluate(const Size& size, c10::function_ref<int64_t(const std::string&)> number_of) {
  const auto value_of = [&](const Atom& atom) -> int64_t {
    if (atom.kind == Atom::Kind::Symbol) return number_of(atom.name);
    const Size a = evaluate(atom.a, number_of), b = evaluate(atom.b, number_of);
    for (const FunctionWord& function : kFunctions) {
      if (function.kind == atom.kind) return function.apply(a, b).value();
    }
    TANDEM_CHECK(false, "shapes", "no such function");
  };
  int64_t sum = SizeOps::constant(size);
  for (const Term& term : SizeOps::terms(size)) {
    int64_t product = term.coefficient;
    for (const AtomPtr& atom : term.atoms) product = checked_multiply(product, value_of(*atom));
    sum = checked_add(sum, product);
  }
  return sum;
}

Size operator+(const Size& a, const Size& b) {
  int64_t constant = checked_add(a.constant_, b.constant_);
  if (a.is_constant() && b.is_constant()) return constant;
  Terms terms = SizeOps::terms(a);
  const Terms& more = SizeOps::terms(b);
  terms.insert(terms.end(), more.begin(), more.end());
  return SizeOps::make(std::move(terms), constant);
}

Size operator-(const Size& a, const Size& b) {
  if (a.is_constant() && b.is_constant()) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(a.constant_, b.constant_, &difference)) {
      raise_overflow(a.constant_, "-", b.constant_);
    }
    return difference;
  }
  return a + Size(-1) * b;
}

Size operator*(const Size& a, const Size& b) {
  int64_t constant = checked_multiply(a.constant_, b.constant_);
  if (a.is_constant() && b.is_constant()) return constant;
  Terms terms;
  const Terms& x = SizeOps::terms(a);
  const Terms& y = SizeOps::terms(b);
  terms.reserve((x.size() + 1) * (y.size() + 1) - 1);
  for (const Term& p : x) {
    for (const Term& q : y) terms.push_back(multiply(p, q));
    if (b.constant_ != 0) terms.push_back({checked_multiply(p.coefficient, b.constant_), p.atoms});
  }
  for (const Term& q : y) {
    if (a.constant_ != 0) terms.push_back({checked_multiply(q.coefficient, a.constant_), q.atoms});
  }
  return SizeOps::make(std::move(terms), constant);
}

Size floordiv(const Size& a, const Size& b) {
  require_divisor(a, b);
  auto divisor = b.maybe_value();
  if (a.is_constant() && divisor) return floor_divide(a.constant_, *divisor);
  if (!divisor || *divisor == kMin) return SizeOps::function(Atom::Kind::FloorDiv, a, b);
  // What the divisor divides leaves the function: floordiv(4*s0 + 3, 2) is 2*s0 + 1.
  Terms outside;
  Terms inside;
  for (const Term& term : SizeOps::terms(a)) {
    if (floor_mod(term.coefficient, *divisor) == 0) {
      outside.push_back({floor_divide(term.coefficient, *divisor), term.atoms});
    } else {
      inside.push_back(term);
    }
  }
  int64_t constant = floor_divide(a.constant_, *divisor);
  Size quotient = SizeOps::make(std::move(outside), constant);
  if (inside.empty()) return quotient;
  Size rest = SizeOps::make(std::move(inside), floor_mod(a.constant_, *divisor));
  return quotient + SizeOps::function(Atom::Kind::FloorDiv, rest, b);
}

Size mod(const Size& a, const Size& b) {
  require_divisor(a, b);
  auto divisor = b.maybe_value();
  if (a.is_constant() && divisor) return floor_mod(a.constant_, *divisor);
  if (!divisor) {
    return a == b ? Size(0) : SizeOps::function(Atom::Kind::Mod, a, b);
  }
  Terms rest;
  for (const Term& term : SizeOps::terms(a)) {
    int64_t coefficient = floor_mod(term.coefficient, *divisor);
    if (coefficient != 0) rest.push_back({coefficient, term.atoms});
  }
  Size reduced = SizeOps::make(std::move(rest), floor_mod(a.constant_, *divisor));
  return reduced.is_constant() ? reduced : SizeOps::function(Atom::Kind::Mod, reduced, b);
}

Size min(const Size& a, const Size& b) {
  if (SizeOps::same_terms(a, b)) return a.constant_ <= b.constant_ ? a : b;
  bool ordered = SizeOps::compare(a, b) < 0;
  return SizeOps::function(Atom::Kind::Min, ordered ? a : b, ordered ? b : a);
}

Size max(const Size& a, const Size& b) {
  if (SizeOps::same_terms(a, b)) return a.constant_ >= b.constant_ ? a : b;
  bool ordered = SizeOps::compare(a, b) < 0;
  return SizeOps::function(Atom::Kind::Max, ordered ? a : b, ordered ? b : a);
}

bool operator==(const Size& a, const Size& b) {
  if (a.is_constant() != b.is_constant() || a.constant_ != b.constant_) return false;
  return a.is_constant() || SizeOps::compare(a, b) == 0;
}

uint64_t Size::hash() const {
  StableHash hash;
  for (const Term& term : SizeOps::terms(*this)) {
    hash.add(static_cast<uint64_t>(term.coefficient)).add(term.atoms.size());
    for (const AtomPtr& atom : term.atoms) {
      hash.add(static_cast<uint64_t>(atom->kind));
      if (atom->kind == Atom::Kind::Symbol) {
        hash.add(atom->name);
      } else {
        hash.add(atom->a.hash()).add(atom->b.hash());
      }
    }
  }
  return hash.add(static_cast<uint64_t>(constant_)).value();
}

std::string Size::to_string() const {
  std::string out;
  append(out, *this);
  return out;
}

Size Size::parse(std::string_view& text) { return Reader(text).expression(); }

std::ostream& operator<<(std::ostream& out, const Size& size) { return out << size.to_string(); }

}  // namespace tandem::shapes
