#include "loops/rules/rule.h"
#include "ops/own/seeded_draws.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

// One function per family of ops. Each computes in the dtype that libtorch's kernel computes in,
// in its order, and rounds once to the result's dtype.

namespace tandem::loops {
namespace {

using c10::ScalarType;

ScalarType result_dtype(const Emitter& e) { return e.call.result().dtype; }
bool is_float(const Call& call) { return c10::isFloatingType(call.result().dtype); }
bool is_float_operand(const Call& call) { return c10::isFloatingType(call.tensor(0)->dtype); }
/// The 16-bit kernels round between the steps of these ops, in ways of their own.
bool is_wide_float(const Call& call) {
  return is_float(call) && !c10::isReducedFloatingType(call.result().dtype);
}
bool is_whole(const Call& call) { return c10::isIntegralType(call.result().dtype, true); }
bool is_number(const Call& call) { return call.result().dtype != ScalarType::Bool; }

/// f(x), computed in the result's dtype: integers become floats first.
template <LoopOp op>
Val function(Emitter& e) {
  return e.body.to(e.body.unary(op, e.as(0, result_dtype(e))), result_dtype(e));
}

template <LoopOp op>
Val binary(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return e.body.to(e.body.binary(op, e.as(0, dtype), e.as(1, dtype)), dtype);
}

template <LoopOp op>
Val arithmetic(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return e.body.to(e.body.binary(op, e.as(0, dtype), e.as_term(1, dtype)), dtype);
}

/// Of two equal zeros the first one; libtorch's bf16 kernel takes the second.
template <LoopOp op>
Val without_nan(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const Val a = e.as(0, dtype), b = e.as(1, dtype);
  const bool swapped = e.eager.second_zero_in_bf16 && dtype == ScalarType::BFloat16;
  return e.body.to(swapped ? e.body.binary(op, b, a) : e.body.binary(op, a, b), dtype);
}

// Bools multiply as `and` and add as `or`.
Val mul(Emitter& e) {
  return result_dtype(e) == ScalarType::Bool ? binary<LoopOp::And>(e) : arithmetic<LoopOp::Mul>(e);
}

/// Where libtorch's f32 and f64 kernels let the compiler contract a product and a sum, and their
/// results show it.
Val fused(Emitter& e, Val a, Val b, Val c) {
  if (!e.eager.contracts || c10::isReducedFloatingType(result_dtype(e)))
    return e.body.binary(LoopOp::Add, e.body.binary(LoopOp::Mul, a, b), c);
  return e.body.fma(a, b, c);
}

/// A step of a kernel that computes in f16 itself and so rounds after each.
Val f16_step(Emitter& e, Val value) {
  if (!e.eager.steps_in_f16 || result_dtype(e) != ScalarType::Half) return value;
  return e.body.wide(e.body.to(value, ScalarType::Half));
}

/// a + alpha * b, rounded once by libtorch's kernel: its vectors multiply and add in one step.
Val scaled_sum(Emitter& e, Val a, Val b, double alpha) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& body = e.body;
  if (dtype == ScalarType::Bool) return body.binary(LoopOp::Or, a, b);
  Val sum;
  if (alpha == 1) {
    sum = body.binary(LoopOp::Add, a, b);
  } else if (alpha == -1) {
    sum = body.binary(LoopOp::Sub, a, b);
  } else if (e.eager.contracts && c10::isFloatingType(dtype)) {
    sum = body.fma(b, body.wide(e.number(alpha, dtype)), a);
  } else {
    sum =
        body.binary(LoopOp::Add, a, body.binary(LoopOp::Mul, b, body.wide(e.number(alpha, dtype))));
  }
  return body.to(sum, dtype);
}

double alpha_of(const Call& call) { return call.number(2)->as_double(); }
bool has_alpha(const Call& call) {
  const auto alpha = call.number(2);
  if (!alpha.has_value()) return false;
  if (alpha->kind == Number::Kind::Float && !is_float(call)) return false;  // libtorch raises
  return call.result().dtype != ScalarType::Bool || alpha->as_double() == 1;
}

Val add(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return scaled_sum(e, e.as(0, dtype), e.as(1, dtype), alpha_of(e.call));
}
Val sub(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return scaled_sum(e, e.as(0, dtype), e.as(1, dtype), -alpha_of(e.call));
}
Val rsub(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return scaled_sum(e, e.as(1, dtype), e.as(0, dtype), -alpha_of(e.call));
}
bool sub_applies(const Call& call) { return is_number(call) && has_alpha(call); }

Val div_mode(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  if (!e.call.has(2)) return arithmetic<LoopOp::Div>(e);
  const Val a = e.as(0, dtype), b = e.as(1, dtype);
  if (e.call.text(2) == "floor") return e.body.to(e.body.binary(LoopOp::FloorDiv, a, b), dtype);
  return e.body.to(e.body.unary(LoopOp::Trunc, e.body.binary(LoopOp::Div, a, b)), dtype);
}

// libtorch's kernel has short forms for these exponents, and rounds between their steps.
Val pow_number(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const double exponent = e.call.number(1)->as_double();
  BodyBuilder& body = e.body;
  const Val x = e.as(0, dtype);
  auto rounded = [&](Val value) {
    return e.eager.powers_in_bf16 && dtype == ScalarType::BFloat16
               ? body.wide(body.to(value, dtype))
               : value;
  };
  const auto square = [&] { return rounded(body.binary(LoopOp::Mul, x, x)); };
  // The f16 kernel calls pow: of -inf that is inf, of -0 it is 0.
  const auto root = [&] {
    if (!e.eager.f16_roots_by_pow || dtype != ScalarType::Half) return body.unary(LoopOp::Sqrt, x);
    const auto number = [&](double value) { return e.number(value, x.dtype); };
    const Val is_lowest = body.compare(LoopOp::Eq, x, number(-HUGE_VAL));
    const Val base = body.select(is_lowest, number(HUGE_VAL), x);
    return body.binary(LoopOp::Add, body.unary(LoopOp::Sqrt, base), number(0));
  };
  Val power;
  if (exponent == 0) {
    power = e.number(1.0, body.wide(x).dtype);
  } else if (exponent == 1) {
    power = x;
  } else if (exponent == 2) {
    power = square();
  } else if (exponent == 3) {
    power = body.binary(LoopOp::Mul, square(), x);
  } else if (exponent == -2) {
    power = body.unary(LoopOp::Reciprocal, square());
  } else if (exponent == 0.5) {
    power = root();
  } else if (exponent == -0.5) {
    power = body.unary(LoopOp::Reciprocal, root());
  } else if (exponent == -1) {
    power = body.unary(LoopOp::Reciprocal, x);
  } else {
    power = body.binary(LoopOp::Pow, x, body.wide(e.number(exponent, dtype)));
  }
  return body.to(power, dtype);
}

template <LoopOp op>
Val comparison(Emitter& e) {
  const ScalarType dtype = e.call.promoted({0, 1});
  return e.body.compare(op, e.as(0, dtype), e.as(1, dtype));
}
bool comparable(const Call& call) {
  const ScalarType dtype = call.promoted({0, 1});
  return !c10::isComplexType(dtype);
}

template <LoopOp op>
Val logical(Emitter& e) {
  return e.body.binary(op, e.body.to(e.operand(0), ScalarType::Bool),
                       e.body.to(e.operand(1), ScalarType::Bool));
}
Val logical_not(Emitter& e) { return e.body.logical_not(e.operand(0)); }
Val bitwise_not(Emitter& e) { return e.body.unary(LoopOp::Not, e.operand(0)); }

// Of two equal zeros Max gives the second: x keeps its sign.
Val relu(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const Val x = e.as(0, dtype);
  return {e.body.binary(LoopOp::Max, e.number(0.0, x.dtype), x).id, dtype};
}

/// x, or operand i if x lies beyond. Of two equal zeros x if the bound is a number, otherwise the
/// bound, as in eager's vectors.
Val bounded(Emitter& e, LoopOp op, Val x, size_t i) {
  const Val bound = e.as(i, result_dtype(e));
  return e.call.tensor(i) == nullptr ? e.body.binary(op, bound, x) : e.body.binary(op, x, bound);
}

Val convert(Emitter& e) { return e.body.to(e.operand(0), result_dtype(e)); }

Val where(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return {
      e.body.select(e.body.to(e.operand(0), ScalarType::Bool), e.as(1, dtype), e.as(2, dtype)).id,
      dtype};
}

/// libtorch's kernel reads the number behind a tensor, and raises if it does not fit.
bool masked_fill_applies(const Call& call) {
  const ir::TensorType* value = call.tensor(2);
  if (value == nullptr) return call.number(2).has_value();
  const ScalarType from = value->dtype, to = call.result().dtype;
  if (from == to || from == ScalarType::Bool) return true;
  return c10::promoteTypes(from, to) == to &&
         !(c10::isIntegralType(from, false) && to == ScalarType::Half);
}

Val masked_fill(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return {e.body.select(e.operand(1), e.as(2, dtype), e.as(0, dtype)).id, dtype};
}

Val clamp(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  Val x = e.as(0, dtype);
  if (e.call.has(1)) x = bounded(e, LoopOp::Max, x, 1);
  if (e.call.operand_count() > 2 && e.call.has(2)) x = bounded(e, LoopOp::Min, x, 2);
  return {x.id, dtype};
}
Val clamp_max(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return {bounded(e, LoopOp::Min, e.as(0, dtype), 1).id, dtype};
}

Val threshold_backward(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const Val below = e.body.compare(LoopOp::Le, e.as(1, dtype), e.as(2, dtype));
  return {e.body.select(below, e.number(0.0, compute_dtype(dtype)), e.as(0, dtype)).id, dtype};
}

Val sigmoid_backward(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const Val g = e.as(0, dtype), y = e.as(1, dtype), one = e.number(1.0, g.dtype);
  BodyBuilder& b = e.body;
  const Val rest = f16_step(e, b.binary(LoopOp::Sub, one, y));
  return b.to(b.binary(LoopOp::Mul, f16_step(e, b.binary(LoopOp::Mul, g, rest)), y), dtype);
}

Val tanh_backward(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const Val g = e.as(0, dtype), y = e.as(1, dtype), one = e.number(1.0, g.dtype);
  BodyBuilder& b = e.body;
  // Of the two plain dtypes only f32's kernel is contracted.
  const Val rest = e.eager.contracts && dtype == ScalarType::Float
                       ? b.fma(b.unary(LoopOp::Neg, y), y, one)
                       : b.binary(LoopOp::Sub, one, b.binary(LoopOp::Mul, y, y));
  return b.to(b.binary(LoopOp::Mul, g, rest), dtype);
}

/// self + value * a * b, or a / b.
template <LoopOp op>
Val add_combined(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const Val value = e.number(*e.call.number(3), compute_dtype(dtype));
  const Val scaled = b.binary(LoopOp::Mul, value, e.as(1, dtype));
  if constexpr (op == LoopOp::Mul)
    return b.to(fused(e, scaled, e.as(2, dtype), e.as(0, dtype)), dtype);
  return b.to(b.binary(LoopOp::Add, e.as(0, dtype), b.binary(op, scaled, e.as(2, dtype))), dtype);
}

// Where kernels contract, these do so for 16-bit floats, too, in f32.
Val lerp(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const Val from = e.as(0, dtype), to = e.as(1, dtype);
  const Val weight =
      e.call.tensor(2) != nullptr ? e.as(2, dtype) : e.number(*e.call.number(2), from.dtype);
  const Val range = b.binary(LoopOp::Sub, to, from);
  const auto step = [&](Val p, Val q, Val sum) {
    return e.eager.contracts ? b.fma(p, q, sum)
                             : b.binary(LoopOp::Add, b.binary(LoopOp::Mul, p, q), sum);
  };
  const Val near = step(weight, range, from);
  const Val far = step(b.unary(LoopOp::Neg, range),
                       b.binary(LoopOp::Sub, e.number(1.0, from.dtype), weight), to);
  const Val small = b.compare(LoopOp::Lt, b.unary(LoopOp::Abs, weight), e.number(0.5, from.dtype));
  return b.to(b.select(small, near, far), dtype);
}

double largest(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return std::numeric_limits<c10::Half>::max();
    case ScalarType::BFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case ScalarType::Float:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

Val isinf(Emitter& e) {
  const Val x = e.body.wide(e.operand(0));
  return e.body.compare(LoopOp::Eq, e.body.unary(LoopOp::Abs, x), e.number(HUGE_VAL, x.dtype));
}
Val isnan(Emitter& e) { return e.body.is_nan(e.body.wide(e.operand(0))); }

/// Replaces NaN by 0 and infinities by the dtype's limits, if the call says nothing else.
Val nan_to_num(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const double limit = largest(dtype);
  const auto other = [&](size_t i, double absent) {
    const double number = e.call.has(i) ? e.call.number(i)->as_double() : absent;
    return b.wide(e.number(number, dtype));
  };
  const Val x = e.as(0, dtype);
  const auto is = [&](double value) { return b.compare(LoopOp::Eq, x, e.number(value, x.dtype)); };
  Val y = b.select(is(HUGE_VAL), other(2, limit), x);
  y = b.select(is(-HUGE_VAL), other(3, -limit), y);
  return {b.select(b.is_nan(x), other(1, 0), y).id, dtype};
}

/// log(x / (1 - x)), of x between eps and 1 - eps if there is an eps.
Val logit(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  Val x = e.as(0, dtype);
  const Val one = e.number(1.0, x.dtype);
  if (e.call.has(1)) {
    const double eps = e.call.number(1)->as_double();
    const Val low = e.number(eps, x.dtype), high = b.binary(LoopOp::Sub, one, low);
    x = b.binary(LoopOp::Min, b.binary(LoopOp::Max, x, low), high);
  }
  return b.unary(LoopOp::Log, b.binary(LoopOp::Div, x, b.binary(LoopOp::Sub, one, x)));
}

// ---- gelu: eager's kernels compute it with erf or tanh; these forms have one exponential, and
// ---- do not cancel where x is negative

bool is_tanh_form(const Call& call, size_t approximate) { return call.text(approximate) == "tanh"; }

/// tanh(u) of gelu is 2 s - 1, s = 1 / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double kTwoBeta = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kKappa = 0.044715;

/// e^(-2u)
Val power_of_gelu(Emitter& e, Val x, Val square) {
  BodyBuilder& b = e.body;
  const Val factor = b.binary(LoopOp::Add, e.number(-kTwoBeta, x.dtype),
                              b.binary(LoopOp::Mul, square, e.number(-kTwoBeta * kKappa, x.dtype)));
  return b.unary(LoopOp::Exp, b.binary(LoopOp::Mul, x, factor));
}

Val gelu(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const Val x = e.as(0, dtype);
  if (is_tanh_form(e.call, 1)) {
    const Val power = power_of_gelu(e, x, b.binary(LoopOp::Mul, x, x));
    const Val bottom = b.binary(LoopOp::Add, power, e.number(1.0, x.dtype));
    return b.to(b.binary(LoopOp::Div, x, bottom), dtype);
  }
  return b.to(b.binary(LoopOp::Mul, x, b.unary(LoopOp::NormalCdf, x)), dtype);
}

Val gelu_backward(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const Val g = e.as(0, dtype), x = e.as(1, dtype);
  const auto number = [&](double value) { return e.number(value, x.dtype); };
  const auto times = [&](Val p, Val q) { return b.binary(LoopOp::Mul, p, q); };
  const auto plus = [&](Val p, Val q) { return b.binary(LoopOp::Add, p, q); };
  const Val square = times(x, x);
  if (is_tanh_form(e.call, 2)) {
    const Val power = power_of_gelu(e, x, square);
    const Val s = b.unary(LoopOp::Reciprocal, plus(power, number(1)));
    const Val slope = plus(times(square, number(3 * kTwoBeta * kKappa)), number(kTwoBeta));
    // 1 - s without cancellation; an infinite power would make a NaN of s = 0.
    const Val rest = times(b.binary(LoopOp::Min, power, number(3e38)), s);
    // In this order: x * slope may be infinite where the rest is zero.
    const Val inner = times(times(slope, rest), x);
    return b.to(times(g, times(s, plus(inner, number(1)))), dtype);
  }
  const Val gauss = b.unary(LoopOp::Exp, times(square, number(-0.5)));
  const Val density = times(gauss, number(std::numbers::inv_sqrtpi / std::numbers::sqrt2));
  return b.to(times(g, plus(b.unary(LoopOp::NormalCdf, x), times(x, density))), dtype);
}

/// What the op's own kernel computes: the operand itself is not read.
Val bernoulli_from(Emitter& e) {
  const ir::TensorType& type = e.call.result();
  BodyBuilder& b = e.body;
  const auto integer = [&](int64_t value) {
    return b.constant(ScalarType::Long, Number::of(value));
  };
  Val counter = integer(0);
  int64_t inner = 1;
  for (auto dim = type.sizes.size(); dim-- > 0;) {
    const int64_t size = type.sizes[dim].value();
    if (size == 1) continue;
    const Val index = e.dim_index(dim);
    const Val part = inner == 1 ? index : b.binary(LoopOp::Mul, index, integer(inner));
    counter = inner == 1 ? part : b.binary(LoopOp::Add, counter, part);
    inner *= size;
  }
  const Val bits = b.binary(LoopOp::RandomBits, counter, e.operand(1));
  const Val word = b.binary(LoopOp::And, bits, integer(0xffffffff));
  const int64_t threshold = ops::bernoulli_threshold(e.call.number(2)->as_double());
  return b.to(b.compare(LoopOp::Lt, word, integer(threshold)), type.dtype);
}

/// 0 where the row is ignored; the kernel fails if a class is out of range.
Val class_index(Emitter& e) {
  const auto integer = [&](int64_t value) {
    return e.body.constant(ScalarType::Long, Number::of(value));
  };
  const Val target = e.operand(0);
  const Val ignored = e.body.compare(LoopOp::Eq, target, integer(*e.call.integer(2)));
  return e.body.check_index(e.body.select(ignored, integer(0), target), *e.call.integer(1));
}
bool class_index_applies(const Call& call) {
  return call.tensor(0)->dtype == ScalarType::Long && call.integer(1) && call.integer(2);
}

template <size_t i>
bool number_at(const Call& call) {
  return call.number(i).has_value() && is_float(call);
}
template <size_t i>
bool number_or_tensor_at(const Call& call) {
  return call.number(i).has_value() || call.tensor(i) != nullptr;
}

bool clamp_applies(const Call& call) {
  for (size_t i = 1; i < call.operand_count(); ++i) {
    if (call.has(i) && !call.number(i).has_value() && call.tensor(i) == nullptr) return false;
  }
  return is_number(call);
}

constexpr Rule light(std::string_view op, Val (*emit)(Emitter&),
                     bool (*applies)(const Call&) = nullptr) {
  return {.op = op, .emit = emit, .applies = applies};
}
constexpr Rule heavy(std::string_view op, Val (*emit)(Emitter&),
                     bool (*applies)(const Call&) = nullptr) {
  return {.op = op, .weight = Weight::Heavy, .emit = emit, .applies = applies};
}

const auto kPointwiseRules = std::to_array<Rule>({
    light("abs", function<LoopOp::Abs>, is_number),
    light("neg", function<LoopOp::Neg>, is_number),
    light("sign", function<LoopOp::Sign>, is_number),
    light("sgn", function<LoopOp::Sign>, is_number),
    light("floor", function<LoopOp::Floor>, is_float),
    light("ceil", function<LoopOp::Ceil>, is_float),
    light("trunc", function<LoopOp::Trunc>, is_float),
    light("round", function<LoopOp::Round>, is_float),
    light("sqrt", function<LoopOp::Sqrt>),
    light("rsqrt", function<LoopOp::Rsqrt>),
    light("reciprocal", function<LoopOp::Reciprocal>),
    heavy("exp", function<LoopOp::Exp>),
    heavy("exp2", function<LoopOp::Exp2>),
    heavy("expm1", function<LoopOp::Expm1>),
    heavy("log", function<LoopOp::Log>),
    heavy("log1p", function<LoopOp::Log1p>),
    heavy("log2", function<LoopOp::Log2>),
    heavy("log10", function<LoopOp::Log10>),
    heavy("sin", function<LoopOp::Sin>),
    heavy("cos", function<LoopOp::Cos>),
    heavy("tan", function<LoopOp::Tan>),
    heavy("asin", function<LoopOp::Asin>),
    heavy("acos", function<LoopOp::Acos>),
    heavy("atan", function<LoopOp::Atan>),
    heavy("sinh", function<LoopOp::Sinh>),
    heavy("cosh", function<LoopOp::Cosh>),
    heavy("tanh", function<LoopOp::Tanh>),
    heavy("asinh", function<LoopOp::Asinh>),
    heavy("acosh", function<LoopOp::Acosh>),
    heavy("atanh", function<LoopOp::Atanh>),
    heavy("erf", function<LoopOp::Erf>),
    heavy("erfc", function<LoopOp::Erfc>),
    heavy("lgamma", function<LoopOp::Lgamma>),
    heavy("sigmoid", function<LoopOp::Sigmoid>),
    heavy("logit", logit, is_wide_float),
    heavy("gelu", gelu, is_float),
    heavy("gelu_backward", gelu_backward, is_float),
    light("relu", relu, is_number),
    light("nan_to_num", nan_to_num, is_float),
    light("isnan", isnan, is_float_operand),
    light("isinf", isinf, is_float_operand),
    light("logical_not", logical_not),
    light("bitwise_not", bitwise_not, is_whole),
    light("add.Tensor", add, has_alpha),
    light("add.Scalar", add, has_alpha),
    light("sub.Tensor", sub, sub_applies),
    light("sub.Scalar", sub, sub_applies),
    light("rsub.Tensor", rsub, sub_applies),
    light("rsub.Scalar", rsub, sub_applies),
    light("mul.Tensor", mul),
    {.op = "mul.Scalar", .any_number = true, .emit = mul},
    light("div.Tensor", arithmetic<LoopOp::Div>),
    {.op = "div.Scalar", .any_number = true, .emit = arithmetic<LoopOp::Div>},
    light("div.Tensor_mode", div_mode, is_wide_float),
    light("div.Scalar_mode", div_mode, is_wide_float),
    light("floor_divide", binary<LoopOp::FloorDiv>, is_wide_float),
    light("remainder.Tensor", binary<LoopOp::Remainder>, is_float),
    light("remainder.Scalar", binary<LoopOp::Remainder>, is_float),
    light("fmod.Tensor", binary<LoopOp::Fmod>, is_float),
    light("fmod.Scalar", binary<LoopOp::Fmod>, is_float),
    heavy("pow.Tensor_Scalar", pow_number, number_at<1>),
    heavy("pow.Tensor_Tensor", binary<LoopOp::Pow>, is_float),
    heavy("pow.Scalar", binary<LoopOp::Pow>, number_at<0>),
    light("atan2", binary<LoopOp::Atan2>, is_float),
    light("hypot", binary<LoopOp::Hypot>, is_float),
    light("copysign.Tensor", binary<LoopOp::Copysign>, is_float),
    light("copysign.Scalar", binary<LoopOp::Copysign>, is_float),
    light("maximum", binary<LoopOp::Max>, is_number),
    light("minimum", binary<LoopOp::Min>, is_number),
    light("fmax", without_nan<LoopOp::Fmax>, is_float),
    light("fmin", without_nan<LoopOp::Fmin>, is_float),
    light("bitwise_and.Tensor", binary<LoopOp::And>, is_whole),
    light("bitwise_or.Tensor", binary<LoopOp::Or>, is_whole),
    light("bitwise_xor.Tensor", binary<LoopOp::Xor>, is_whole),
    light("bitwise_and.Scalar", binary<LoopOp::And>, is_whole),
    light("bitwise_or.Scalar", binary<LoopOp::Or>, is_whole),
    light("bitwise_xor.Scalar", binary<LoopOp::Xor>, is_whole),
    light("logical_and", logical<LoopOp::And>),
    light("logical_or", logical<LoopOp::Or>),
    light("logical_xor", logical<LoopOp::Xor>),
    light("eq.Tensor", comparison<LoopOp::Eq>, comparable),
    light("ne.Tensor", comparison<LoopOp::Ne>, comparable),
    light("lt.Tensor", comparison<LoopOp::Lt>, comparable),
    light("le.Tensor", comparison<LoopOp::Le>, comparable),
    light("gt.Tensor", comparison<LoopOp::Gt>, comparable),
    light("ge.Tensor", comparison<LoopOp::Ge>, comparable),
    light("eq.Scalar", comparison<LoopOp::Eq>, number_or_tensor_at<1>),
    light("ne.Scalar", comparison<LoopOp::Ne>, number_or_tensor_at<1>),
    light("lt.Scalar", comparison<LoopOp::Lt>, number_or_tensor_at<1>),
    light("le.Scalar", comparison<LoopOp::Le>, number_or_tensor_at<1>),
    light("gt.Scalar", comparison<LoopOp::Gt>, number_or_tensor_at<1>),
    light("ge.Scalar", comparison<LoopOp::Ge>, number_or_tensor_at<1>),
    light("where.self", where),
    light("masked_fill.Scalar", masked_fill, masked_fill_applies),
    light("masked_fill.Tensor", masked_fill, masked_fill_applies),
    light("clamp", clamp, clamp_applies),
    light("clamp.Tensor", clamp, clamp_applies),
    light("clamp_min", clamp, clamp_applies),
    light("clamp_min.Tensor", clamp, clamp_applies),
    light("clamp_max", clamp_max, clamp_applies),
    light("clamp_max.Tensor", clamp_max, clamp_applies),
    light("threshold_backward", threshold_backward, number_at<2>),
    light("sigmoid_backward", sigmoid_backward),
    light("tanh_backward", tanh_backward),
    light("addcmul", add_combined<LoopOp::Mul>, number_at<3>),
    light("addcdiv", add_combined<LoopOp::Div>, number_at<3>),
    light("lerp.Scalar", lerp, number_at<2>),
    light("lerp.Tensor", lerp, is_float),
    heavy("tandem::bernoulli_from", bernoulli_from, number_or_tensor_at<2>),
    light("tandem::class_index", class_index, class_index_applies),
    light("_to_copy", convert),
    {.op = "clone", .pays_alone = false, .emit = convert},
});

}  // namespace

std::span<const Rule> pointwise_rules() { return kPointwiseRules; }

}  // namespace tandem::loops
