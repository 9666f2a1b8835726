#include "loops/ir/scalar_math.h"

#include "base/error.h"
#include "base/philox.h"
#include "loops/ir/loop_op_table.h"

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>

namespace tandem::loops {
namespace {

/// Calls fn with a value of the C++ type of a compute dtype.
template <class Fn>
auto with_type(c10::ScalarType dtype, Fn&& fn) {
  switch (dtype) {
    case c10::ScalarType::Bool:
      return fn(bool{});
    case c10::ScalarType::Byte:
      return fn(uint8_t{});
    case c10::ScalarType::Char:
      return fn(int8_t{});
    case c10::ScalarType::Short:
      return fn(int16_t{});
    case c10::ScalarType::Int:
      return fn(int32_t{});
    case c10::ScalarType::Long:
      return fn(int64_t{});
    case c10::ScalarType::Float:
      return fn(float{});
    case c10::ScalarType::Double:
      return fn(double{});
    default:
      TANDEM_CHECK(false, "lower", "no value of the loop IR has dtype ", c10::toString(dtype));
  }
}

template <class T>
Scalar wrap(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return {static_cast<double>(value), 0};
  } else {
    return {0, static_cast<int64_t>(value)};
  }
}

template <class T>
T unwrap(const Scalar& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value.number);
  } else {
    return static_cast<T>(value.integer);
  }
}

template <class T>
T load(const void* memory, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(memory) + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <class T>
void store(void* memory, int64_t index, T value) {
  std::memcpy(static_cast<char*>(memory) + index * int64_t{sizeof(T)}, &value, sizeof(T));
}

double function(LoopOp op, double x) {
  switch (op) {
    case LoopOp::Floor:
      return std::floor(x);
    case LoopOp::Ceil:
      return std::ceil(x);
    case LoopOp::Trunc:
      return std::trunc(x);
    case LoopOp::Round:
      return std::nearbyint(x);
    case LoopOp::Exp:
      return std::exp(x);
    case LoopOp::Exp2:
      return std::exp2(x);
    case LoopOp::Expm1:
      return std::expm1(x);
    case LoopOp::Log:
      return std::log(x);
    case LoopOp::Log1p:
      return std::log1p(x);
    case LoopOp::Log2:
      return std::log2(x);
    case LoopOp::Log10:
      return std::log10(x);
    case LoopOp::Sin:
      return std::sin(x);
    case LoopOp::Cos:
      return std::cos(x);
    case LoopOp::Tan:
      return std::tan(x);
    case LoopOp::Asin:
      return std::asin(x);
    case LoopOp::Acos:
      return std::acos(x);
    case LoopOp::Atan:
      return std::atan(x);
    case LoopOp::Sinh:
      return std::sinh(x);
    case LoopOp::Cosh:
      return std::cosh(x);
    case LoopOp::Tanh:
      return std::tanh(x);
    case LoopOp::Asinh:
      return std::asinh(x);
    case LoopOp::Acosh:
      return std::acosh(x);
    case LoopOp::Atanh:
      return std::atanh(x);
    case LoopOp::Erf:
      return std::erf(x);
    case LoopOp::Erfc:
      return std::erfc(x);
    case LoopOp::Lgamma:
      return std::lgamma(x);
    case LoopOp::Sigmoid:
      return 1 / (1 + std::exp(-x));
    case LoopOp::NormalCdf:
      return std::erfc(-x * (std::numbers::sqrt2 / 2)) / 2;
    default:
      TANDEM_CHECK(false, "lower", "op ", to_string(op), " has no reference");
  }
}

template <class T>
T unary(LoopOp op, T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return op == LoopOp::Not ? !x : x;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case LoopOp::Neg:
        return static_cast<T>(U{0} - static_cast<U>(x));
      case LoopOp::Abs:
        return x < 0 ? static_cast<T>(U{0} - static_cast<U>(x)) : x;
      case LoopOp::Sign:
        return static_cast<T>((x > 0) - (x < 0));
      case LoopOp::Not:
        return static_cast<T>(~x);
      default:
        TANDEM_CHECK(false, "lower", "op ", to_string(op), " on an integer");
    }
  } else {
    switch (op) {
      case LoopOp::Neg:
        return -x;
      case LoopOp::Abs:
        return std::abs(x);
      case LoopOp::Sign:
        return static_cast<T>((x > 0) - (x < 0));
      case LoopOp::Sqrt:
        return std::sqrt(x);
      case LoopOp::Rsqrt:
        return T{1} / std::sqrt(x);
      case LoopOp::Reciprocal:
        return T{1} / x;
      default:
        return static_cast<T>(function(op, static_cast<double>(x)));
    }
  }
}

// As libtorch's div_floor: exact where the quotient is, and right at the edges of fmod.
template <class T>
T floor_div(T a, T b) {
  if (b == 0) return a / b;
  T mod = std::fmod(a, b);
  T div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T{0}, a / b);
  T floored = std::floor(div);
  if (div - floored > T{0.5}) floored += 1;
  return floored;
}

template <class T>
T remainder_of(T a, T b) {
  T mod = std::fmod(a, b);
  if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
  return mod;
}

template <class T>
T float_binary(LoopOp op, T a, T b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case LoopOp::Add:
      return a + b;
    case LoopOp::Sub:
      return a - b;
    case LoopOp::Mul:
      return a * b;
    case LoopOp::Div:
      return a / b;
    case LoopOp::FloorDiv:
      return floor_div(a, b);
    case LoopOp::Remainder:
      return remainder_of(a, b);
    case LoopOp::Fmod:
      return std::fmod(a, b);
    case LoopOp::Pow:
      return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case LoopOp::Atan2:
      return static_cast<T>(std::atan2(static_cast<double>(a), static_cast<double>(b)));
    case LoopOp::Hypot:
      return static_cast<T>(std::hypot(static_cast<double>(a), static_cast<double>(b)));
    case LoopOp::Copysign:
      return std::copysign(a, b);
    case LoopOp::Max:
      return nan ? a + b : (a > b ? a : b);
    case LoopOp::Min:
      return nan ? a + b : (a < b ? a : b);
    case LoopOp::Fmax:
      return std::isnan(b) || a >= b ? a : b;
    case LoopOp::Fmin:
      return std::isnan(b) || a <= b ? a : b;
    default:
      TANDEM_CHECK(false, "lower", "op ", to_string(op), " on floats");
  }
}

template <class T>
T integer_binary(LoopOp op, T a, T b) {
  using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
  const U x = static_cast<U>(a), y = static_cast<U>(b);
  constexpr int kBits = static_cast<int>(8 * sizeof(T));
  const bool overflows =
      std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == static_cast<T>(-1);
  switch (op) {
    case LoopOp::Add:
      return static_cast<T>(x + y);
    case LoopOp::Sub:
      return static_cast<T>(x - y);
    case LoopOp::Mul:
      return static_cast<T>(x * y);
    case LoopOp::Div:
      return b == 0 ? T{0} : overflows ? a : static_cast<T>(a / b);
    case LoopOp::FloorDiv: {
      if (b == 0 || overflows) return b == 0 ? T{0} : a;
      const T quotient = static_cast<T>(a / b);
      return (a % b != 0 && (a < 0) != (b < 0)) ? static_cast<T>(quotient - 1) : quotient;
    }
    case LoopOp::Remainder: {
      if (b == 0 || overflows) return 0;
      const T rest = static_cast<T>(a % b);
      return (rest != 0 && (rest < 0) != (b < 0)) ? static_cast<T>(rest + b) : rest;
    }
    case LoopOp::Fmod:
      return b == 0 || overflows ? T{0} : static_cast<T>(a % b);
    case LoopOp::Max:
      return a < b ? b : a;
    case LoopOp::Min:
      return b < a ? b : a;
    case LoopOp::And:
      return static_cast<T>(a & b);
    case LoopOp::Or:
      return static_cast<T>(a | b);
    case LoopOp::Xor:
      return static_cast<T>(a ^ b);
    case LoopOp::RandomBits:
      return static_cast<T>(base::philox(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
    case LoopOp::ShiftLeft:
      return b < 0 || b >= kBits ? T{0} : static_cast<T>(x << y);
    case LoopOp::ShiftRight:
      return b < 0 || b >= kBits ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> b);
    default:
      TANDEM_CHECK(false, "lower", "op ", to_string(op), " on integers");
  }
}

bool bool_binary(LoopOp op, bool a, bool b) {
  switch (op) {
    case LoopOp::And:
      return a && b;
    case LoopOp::Or:
      return a || b;
    case LoopOp::Xor:
      return a != b;
    default:
      TANDEM_CHECK(false, "lower", "op ", to_string(op), " on bools");
  }
}

template <class T>
T binary(LoopOp op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return bool_binary(op, a, b);
  } else if constexpr (std::is_integral_v<T>) {
    return integer_binary(op, a, b);
  } else {
    return float_binary(op, a, b);
  }
}

template <class T>
bool compare(LoopOp op, T a, T b) {
  switch (op) {
    case LoopOp::Eq:
      return a == b;
    case LoopOp::Ne:
      return a != b;
    case LoopOp::Lt:
      return a < b;
    case LoopOp::Le:
      return a <= b;
    case LoopOp::Gt:
      return a > b;
    default:
      return a >= b;
  }
}

LoopOp step_of(LoopOp reduction) {
  switch (reduction) {
    case LoopOp::ReduceSum:
      return LoopOp::Add;
    case LoopOp::ReduceProd:
      return LoopOp::Mul;
    case LoopOp::ReduceMax:
      return LoopOp::Max;
    case LoopOp::ReduceMin:
      return LoopOp::Min;
    case LoopOp::ReduceAny:
      return LoopOp::Or;
    default:
      return LoopOp::And;
  }
}

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // By way of int32, of u8 and i64 by way of int64. What does not fit there C++ leaves open;
    // x86's conversion gives the smallest integer.
    constexpr bool kBy64Bits = std::is_same_v<To, uint8_t> || std::is_same_v<To, int64_t>;
    using Machine = std::conditional_t<kBy64Bits, int64_t, int32_t>;
    constexpr auto kLimit = static_cast<From>(kBy64Bits ? 0x1p63 : 0x1p31);
    if (!(value >= -kLimit && value < kLimit))
      return static_cast<To>(std::numeric_limits<Machine>::min());
    return static_cast<To>(static_cast<Machine>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

Scalar read_element(const void* memory, int64_t index, c10::ScalarType stored) {
  if (stored == c10::ScalarType::BFloat16)
    return wrap(static_cast<float>(load<c10::BFloat16>(memory, index)));
  if (stored == c10::ScalarType::Half)
    return wrap(static_cast<float>(load<c10::Half>(memory, index)));
  if (stored == c10::ScalarType::Bool) return wrap(load<uint8_t>(memory, index) != 0);
  return with_type(stored, [&](auto type) { return wrap(load<decltype(type)>(memory, index)); });
}

void write_element(void* memory, int64_t index, c10::ScalarType stored, const Scalar& value) {
  if (stored == c10::ScalarType::BFloat16) {
    store(memory, index, c10::BFloat16(unwrap<float>(value)));
  } else if (stored == c10::ScalarType::Half) {
    store(memory, index, c10::Half(unwrap<float>(value)));
  } else {
    with_type(stored, [&](auto type) { store(memory, index, unwrap<decltype(type)>(value)); });
  }
}

Scalar convert(const Scalar& value, c10::ScalarType from, c10::ScalarType to) {
  return with_type(from, [&](auto source) {
    return with_type(to, [&](auto target) {
      return wrap(converted<decltype(target)>(unwrap<decltype(source)>(value)));
    });
  });
}

Scalar evaluate(const Instruction& line, c10::ScalarType operand_dtype, const Scalar& a,
                const Scalar& b, const Scalar& c) {
  switch (row(line.op).kind) {
    case OpKind::Cast:
      return convert(a, operand_dtype, line.dtype);
    case OpKind::Round:
      return line.op == LoopOp::RoundBF16
                 ? wrap(static_cast<float>(c10::BFloat16(unwrap<float>(a))))
                 : wrap(static_cast<float>(c10::Half(unwrap<float>(a))));
    case OpKind::FloatToBool:
      return wrap(std::isnan(a.number));
    case OpKind::Comparison:
      return with_type(operand_dtype, [&](auto type) {
        using T = decltype(type);
        return wrap(compare(line.op, unwrap<T>(a), unwrap<T>(b)));
      });
    case OpKind::Select:
      return a.integer != 0 ? b : c;
    case OpKind::Fma:
      return line.dtype == c10::ScalarType::Float
                 ? wrap(std::fma(unwrap<float>(a), unwrap<float>(b), unwrap<float>(c)))
                 : wrap(std::fma(a.number, b.number, c.number));
    default:
      return with_type(line.dtype, [&](auto type) {
        using T = decltype(type);
        return operand_count(line.op) == 1 ? wrap(unary(line.op, unwrap<T>(a)))
                                           : wrap(binary(line.op, unwrap<T>(a), unwrap<T>(b)));
      });
  }
}

void accumulate(const Instruction& line, c10::ScalarType operand_dtype, Accumulator& sum,
                const Scalar& a, const Scalar& b) {
  if (line.op == LoopOp::ReduceArgmax || line.op == LoopOp::ReduceArgmin) {
    const bool better = with_type(operand_dtype, [&](auto type) {
      using T = decltype(type);
      const T x = unwrap<T>(a), best = unwrap<T>(sum.value);
      const bool x_nan = x != x, best_nan = best != best;
      if (x_nan != best_nan) return x_nan;
      if (x_nan || x == best) return b.integer < sum.index.integer;
      return line.op == LoopOp::ReduceArgmax ? x > best : x < best;
    });
    if (sum.empty || better) sum = {a, b, false};
    return;
  }
  if (sum.empty) {
    sum.value = a;
  } else {
    with_type(line.dtype, [&](auto type) {
      using T = decltype(type);
      sum.value = wrap(binary(step_of(line.op), unwrap<T>(sum.value), unwrap<T>(a)));
    });
  }
  sum.empty = false;
}

Scalar finish(const Instruction& line, const Accumulator& sum) {
  return line.op == LoopOp::ReduceArgmax || line.op == LoopOp::ReduceArgmin ? sum.index : sum.value;
}

}  // namespace tandem::loops
