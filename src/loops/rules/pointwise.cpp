#include "loops/rules/fusion_rules.h"
#include "ops/own/fast_draws.h"

#include <array>
#include <cmath>
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
  return e.body.to(e.body.binary(op, e.as_term(0, dtype), e.as_term(1, dtype)), dtype);
}

// Bools multiply as `and` and add as `or`.
Val mul(Emitter& e) {
  return result_dtype(e) == ScalarType::Bool ? binary<LoopOp::And>(e) : arithmetic<LoopOp::Mul>(e);
}

/// libtorch's f32 and f64 kernels let the compiler contract a product and a sum; where a rule says
/// `fused`, that is what their results show.
Val fused(Emitter& e, Val a, Val b, Val c) {
  if (c10::isReducedFloatingType(result_dtype(e)))
    return e.body.binary(LoopOp::Add, e.body.binary(LoopOp::Mul, a, b), c);
  return e.body.fma(a, b, c);
}

/// A step of a kernel that computes in f16 itself and so rounds after each.
Val f16_step(Emitter& e, Val value) {
  if (result_dtype(e) != ScalarType::Half) return value;
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
  } else if (c10::isFloatingType(dtype)) {
    sum = body.fma(b, body.wide(e.number(alpha, dtype)), a);
  } else {
    sum = body.binary(LoopOp::Add, a, body.binary(LoopOp::Mul, b, e.number(alpha, dtype)));
  }
  return body.to(sum, dtype);
}

double alpha_of(const Call& call) { return call.number(2)->as_double(); }
bool has_alpha(const Call& call) {
  return call.number(2).has_value() &&
         (call.result().dtype != ScalarType::Bool || alpha_of(call) == 1);
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
    return dtype == ScalarType::BFloat16 ? body.wide(body.to(value, dtype)) : value;
  };
  const auto square = [&] { return rounded(body.binary(LoopOp::Mul, x, x)); };
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
    power = body.unary(LoopOp::Sqrt, x);
  } else if (exponent == -0.5) {
    power = body.unary(LoopOp::Rsqrt, x);
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

Val relu(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  const Val x = e.as(0, dtype);
  return e.body.to(e.body.binary(LoopOp::Max, x, e.number(0.0, x.dtype)), dtype);
}

Val positive(Emitter& e) { return e.operand(0); }

Val convert(Emitter& e) { return e.body.to(e.operand(0), result_dtype(e)); }

Val where(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return {
      e.body.select(e.body.to(e.operand(0), ScalarType::Bool), e.as(1, dtype), e.as(2, dtype)).id,
      dtype};
}

Val masked_fill(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return {e.body.select(e.operand(1), e.as(2, dtype), e.as(0, dtype)).id, dtype};
}

Val clamp(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  Val x = e.as(0, dtype);
  if (e.call.has(1)) x = e.body.binary(LoopOp::Max, x, e.as(1, dtype));
  if (e.call.operand_count() > 2 && e.call.has(2))
    x = e.body.binary(LoopOp::Min, x, e.as(2, dtype));
  return {x.id, dtype};
}
Val clamp_max(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  return {e.body.binary(LoopOp::Min, e.as(0, dtype), e.as(1, dtype)).id, dtype};
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
  const Val rest = dtype == ScalarType::Float
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

Val lerp(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const Val from = e.as(0, dtype), to = e.as(1, dtype);
  const Val weight =
      e.call.tensor(2) != nullptr ? e.as(2, dtype) : e.number(*e.call.number(2), from.dtype);
  const Val range = b.binary(LoopOp::Sub, to, from);
  const Val near = fused(e, weight, range, from);
  const Val far = fused(e, b.unary(LoopOp::Neg, range),
                        b.binary(LoopOp::Sub, e.number(1.0, from.dtype), weight), to);
  const Val small = b.compare(LoopOp::Lt, b.unary(LoopOp::Abs, weight), e.number(0.5, from.dtype));
  return b.to(b.select(small, near, far), dtype);
}

Val isinf(Emitter& e) {
  const Val x = e.body.wide(e.operand(0));
  return e.body.compare(LoopOp::Eq, e.body.unary(LoopOp::Abs, x), e.number(HUGE_VAL, x.dtype));
}
Val isnan(Emitter& e) { return e.body.is_nan(e.body.wide(e.operand(0))); }

Val silu(Emitter& e) {
  const ScalarType dtype = result_dtype(e);
  BodyBuilder& b = e.body;
  const Val x = e.as(0, dtype), one = e.number(1.0, x.dtype);
  const Val bottom = b.binary(LoopOp::Add, one, b.unary(LoopOp::Exp, b.unary(LoopOp::Neg, x)));
  return b.to(b.binary(LoopOp::Div, x, bottom), dtype);
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
    const Val inner = times(times(x, slope), rest);
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

bool plain_copy(const Call& call) {
  const size_t device = call.operand_count() > 4 ? 3 : 0;
  return device == 0 || !call.has(device) || call.result().device.is_cpu();
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

constexpr auto kPointwise = RuleKind::Pointwise;

const auto kRules = std::to_array<Rule>({
    {"abs", kPointwise, function<LoopOp::Abs>, is_number},
    {"neg", kPointwise, function<LoopOp::Neg>, is_number},
    {"sign", kPointwise, function<LoopOp::Sign>, is_number},
    {"sgn", kPointwise, function<LoopOp::Sign>, is_number},
    {"floor", kPointwise, function<LoopOp::Floor>, is_float},
    {"ceil", kPointwise, function<LoopOp::Ceil>, is_float},
    {"trunc", kPointwise, function<LoopOp::Trunc>, is_float},
    {"round", kPointwise, function<LoopOp::Round>, is_float},
    {"sqrt", kPointwise, function<LoopOp::Sqrt>},
    {"rsqrt", kPointwise, function<LoopOp::Rsqrt>},
    {"reciprocal", kPointwise, function<LoopOp::Reciprocal>},
    {"exp", kPointwise, function<LoopOp::Exp>},
    {"exp2", kPointwise, function<LoopOp::Exp2>},
    {"expm1", kPointwise, function<LoopOp::Expm1>},
    {"log", kPointwise, function<LoopOp::Log>},
    {"log1p", kPointwise, function<LoopOp::Log1p>},
    {"log2", kPointwise, function<LoopOp::Log2>},
    {"log10", kPointwise, function<LoopOp::Log10>},
    {"sin", kPointwise, function<LoopOp::Sin>},
    {"cos", kPointwise, function<LoopOp::Cos>},
    {"tan", kPointwise, function<LoopOp::Tan>},
    {"asin", kPointwise, function<LoopOp::Asin>},
    {"acos", kPointwise, function<LoopOp::Acos>},
    {"atan", kPointwise, function<LoopOp::Atan>},
    {"sinh", kPointwise, function<LoopOp::Sinh>},
    {"cosh", kPointwise, function<LoopOp::Cosh>},
    {"tanh", kPointwise, function<LoopOp::Tanh>},
    {"asinh", kPointwise, function<LoopOp::Asinh>},
    {"acosh", kPointwise, function<LoopOp::Acosh>},
    {"atanh", kPointwise, function<LoopOp::Atanh>},
    {"erf", kPointwise, function<LoopOp::Erf>},
    {"erfc", kPointwise, function<LoopOp::Erfc>},
    {"erfinv", kPointwise, function<LoopOp::Erfinv>},
    {"lgamma", kPointwise, function<LoopOp::Lgamma>},
    {"digamma", kPointwise, function<LoopOp::Digamma>},
    {"sigmoid", kPointwise, function<LoopOp::Sigmoid>},
    {"silu", kPointwise, silu},
    {"gelu", kPointwise, gelu, is_float},
    {"gelu_backward", kPointwise, gelu_backward, is_float},
    {"relu", kPointwise, relu, is_number},
    {"positive", kPointwise, positive},
    {"isnan", kPointwise, isnan, is_float_operand},
    {"isinf", kPointwise, isinf, is_float_operand},
    {"logical_not", kPointwise, logical_not},
    {"bitwise_not", kPointwise, bitwise_not},
    {"add.Tensor", kPointwise, add, has_alpha},
    {"add.Scalar", kPointwise, add, has_alpha},
    {"sub.Tensor", kPointwise, sub, sub_applies},
    {"sub.Scalar", kPointwise, sub, sub_applies},
    {"rsub.Tensor", kPointwise, rsub, sub_applies},
    {"rsub.Scalar", kPointwise, rsub, sub_applies},
    {"mul.Tensor", kPointwise, mul},
    {"mul.Scalar", kPointwise, mul},
    {"div.Tensor", kPointwise, arithmetic<LoopOp::Div>},
    {"div.Scalar", kPointwise, arithmetic<LoopOp::Div>},
    {"div.Tensor_mode", kPointwise, div_mode, is_wide_float},
    {"div.Scalar_mode", kPointwise, div_mode, is_wide_float},
    {"floor_divide", kPointwise, binary<LoopOp::FloorDiv>, is_wide_float},
    {"remainder.Tensor", kPointwise, binary<LoopOp::Remainder>, is_float},
    {"remainder.Scalar", kPointwise, binary<LoopOp::Remainder>, is_float},
    {"fmod.Tensor", kPointwise, binary<LoopOp::Fmod>, is_float},
    {"fmod.Scalar", kPointwise, binary<LoopOp::Fmod>, is_float},
    {"pow.Tensor_Scalar", kPointwise, pow_number, number_at<1>},
    {"pow.Tensor_Tensor", kPointwise, binary<LoopOp::Pow>, is_float},
    {"pow.Scalar", kPointwise, binary<LoopOp::Pow>, number_at<0>},
    {"atan2", kPointwise, binary<LoopOp::Atan2>, is_float},
    {"hypot", kPointwise, binary<LoopOp::Hypot>, is_float},
    {"copysign.Tensor", kPointwise, binary<LoopOp::Copysign>, is_float},
    {"copysign.Scalar", kPointwise, binary<LoopOp::Copysign>, is_float},
    {"maximum", kPointwise, binary<LoopOp::Max>, is_number},
    {"minimum", kPointwise, binary<LoopOp::Min>, is_number},
    {"fmax", kPointwise, binary<LoopOp::Fmax>, is_float},
    {"fmin", kPointwise, binary<LoopOp::Fmin>, is_float},
    {"bitwise_and.Tensor", kPointwise, binary<LoopOp::And>},
    {"bitwise_or.Tensor", kPointwise, binary<LoopOp::Or>},
    {"bitwise_xor.Tensor", kPointwise, binary<LoopOp::Xor>},
    {"bitwise_and.Scalar", kPointwise, binary<LoopOp::And>},
    {"bitwise_or.Scalar", kPointwise, binary<LoopOp::Or>},
    {"bitwise_xor.Scalar", kPointwise, binary<LoopOp::Xor>},
    {"logical_and", kPointwise, logical<LoopOp::And>},
    {"logical_or", kPointwise, logical<LoopOp::Or>},
    {"logical_xor", kPointwise, logical<LoopOp::Xor>},
    {"eq.Tensor", kPointwise, comparison<LoopOp::Eq>, comparable},
    {"ne.Tensor", kPointwise, comparison<LoopOp::Ne>, comparable},
    {"lt.Tensor", kPointwise, comparison<LoopOp::Lt>, comparable},
    {"le.Tensor", kPointwise, comparison<LoopOp::Le>, comparable},
    {"gt.Tensor", kPointwise, comparison<LoopOp::Gt>, comparable},
    {"ge.Tensor", kPointwise, comparison<LoopOp::Ge>, comparable},
    {"eq.Scalar", kPointwise, comparison<LoopOp::Eq>, number_or_tensor_at<1>},
    {"ne.Scalar", kPointwise, comparison<LoopOp::Ne>, number_or_tensor_at<1>},
    {"lt.Scalar", kPointwise, comparison<LoopOp::Lt>, number_or_tensor_at<1>},
    {"le.Scalar", kPointwise, comparison<LoopOp::Le>, number_or_tensor_at<1>},
    {"gt.Scalar", kPointwise, comparison<LoopOp::Gt>, number_or_tensor_at<1>},
    {"ge.Scalar", kPointwise, comparison<LoopOp::Ge>, number_or_tensor_at<1>},
    {"where.self", kPointwise, where},
    {"masked_fill.Scalar", kPointwise, masked_fill, number_or_tensor_at<2>},
    {"masked_fill.Tensor", kPointwise, masked_fill, number_or_tensor_at<2>},
    {"clamp", kPointwise, clamp, clamp_applies},
    {"clamp.Tensor", kPointwise, clamp, clamp_applies},
    {"clamp_min", kPointwise, clamp, clamp_applies},
    {"clamp_min.Tensor", kPointwise, clamp, clamp_applies},
    {"clamp_max", kPointwise, clamp_max, clamp_applies},
    {"clamp_max.Tensor", kPointwise, clamp_max, clamp_applies},
    {"threshold_backward", kPointwise, threshold_backward, number_at<2>},
    {"sigmoid_backward", kPointwise, sigmoid_backward},
    {"tanh_backward", kPointwise, tanh_backward},
    {"addcmul", kPointwise, add_combined<LoopOp::Mul>, number_at<3>},
    {"addcdiv", kPointwise, add_combined<LoopOp::Div>, number_at<3>},
    {"lerp.Scalar", kPointwise, lerp, number_at<2>},
    {"lerp.Tensor", kPointwise, lerp, is_float},
    {"tandem::bernoulli_from", kPointwise, bernoulli_from, number_or_tensor_at<2>},
    {"_to_copy", kPointwise, convert, plain_copy},
    {"clone", kPointwise, convert},
});

}  // namespace

std::span<const Rule> pointwise_rules() { return kRules; }

}  // namespace tandem::loops
