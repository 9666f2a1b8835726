#include "ops/decompositions/bodies.h"

#include <cmath>
#include <numbers>

namespace tandem::ops::decompositions {
namespace {

// Of gelu: sqrt(2 / pi), and the factor of the cube.
constexpr double kBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kKappa = 0.044715;

Expr inner_of_tanh_gelu(const Expr& x) { return (x + (x * x * x) * kKappa) * kBeta; }

/// `1 / (1 + e^-x)` as the kernels that contain it write it; sigmoid itself is an op of its own.
Expr logistic(const Expr& x) { return 1 / (exp(-x) + 1); }

Expr clamped(const Expr& x, double low, double high) {
  return x.builder().op("clamp", {x, low, high});
}

/// The product of two numbers as a kernel for this dtype forms it.
double product(const Expr& like, double a, double b) {
  if (like.dtype() == c10::ScalarType::Double) return a * b;
  return static_cast<double>(static_cast<float>(a) * static_cast<float>(b));
}

struct EluNumbers {
  double negative, positive, input;
};

EluNumbers elu_numbers(const OpCall& call, const Expr& like) {
  const double scale = call.number("scale");
  return {product(like, call.number("alpha"), scale), scale, call.number("input_scale")};
}

struct Halves {
  Expr first, second;
};

Halves halves(const Expr& x, int64_t dim) {
  const int64_t half = x.size(dim) / 2;
  Builder& builder = x.builder();
  return {builder.op("slice.Tensor", {x, dim, 0, half, 1}),
          builder.op("slice.Tensor", {x, dim, half, 2 * half, 1})};
}

// A NaN is neither, as in eager's vectors: the shrinking ops keep it, their gradients there are
// zero.
Expr within(const Expr& x, double limit) { return (x >= -limit) & (x <= limit); }
Expr beyond(const Expr& x, double limit) { return (x < -limit) | (x > limit); }

}  // namespace

Results elu(const OpCall& call) {
  const Expr x = call.wide("self");
  const auto [negative, positive, input] = elu_numbers(call, x);
  const Expr grown = x.builder().op("expm1", {x * input});
  return {where(x < 0, grown * negative, x * positive)};
}

Results elu_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), y = call.wide("self_or_result");
  const auto [negative, positive, input] = elu_numbers(call, y);
  const Expr below =
      call.flag("is_result") ? g * input * (y + negative) : g * input * negative * exp(y * input);
  return {where(y > 0, g * positive, below)};
}

Results gelu(const OpCall& call) {
  const Expr x = call.wide("self");
  if (call.text("approximate") == "tanh") return {(x * 0.5) * (tanh(inner_of_tanh_gelu(x)) + 1)};
  return {(x * 0.5) * (erf(x * (std::numbers::sqrt2 / 2)) + 1)};
}

Results gelu_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self");
  if (call.text("approximate") == "tanh") {
    const Expr t = tanh(inner_of_tanh_gelu(x));
    const Expr inner_derivative = ((x * x) * product(x, 3, kKappa) + 1) * kBeta;
    return {g * ((t + 1) * 0.5 + (x * 0.5) * (1 - t * t) * inner_derivative)};
  }
  const Expr cdf = (erf(x * (std::numbers::sqrt2 / 2)) + 1) * 0.5;
  const Expr pdf = exp(x * x * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return {g * (cdf + x * pdf)};
}

Results glu(const OpCall& call) {
  const auto [a, b] = halves(call.wide("self"), call.integer("dim"));
  return {a * logistic(b)};
}

// Eager's first half is rounded before the second one reads it.
Results glu_backward(const OpCall& call) {
  const Expr g = call.tensor("grad_output");
  const int64_t dim = call.integer("dim");
  const auto [a, b] = halves(call.tensor("self"), dim);
  const Expr s = sigmoid(b), w = wide(s);
  const Expr second = to((1 - w) * w * wide(a) * wide(g), g.dtype());
  return {call.builder().op("cat", {ir::Operand::Values{(s * g).id(), second.id()}, dim})};
}

Results hardshrink(const OpCall& call) {
  const Expr x = call.tensor("self");
  return {where(within(x, call.number("lambd")), 0, x)};
}

Results hardshrink_backward(const OpCall& call) {
  return {where(beyond(call.tensor("self"), call.number("lambd")), call.tensor("grad_out"), 0)};
}

Results hardsigmoid(const OpCall& call) { return {clamped(call.wide("self") + 3, 0, 6) / 6}; }

Results hardsigmoid_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self");
  return {where((x > -3) & (x < 3), g * static_cast<double>(1.0F / 6.0F), 0)};
}

Results hardswish(const OpCall& call) {
  const Expr x = call.wide("self");
  return {x * clamped(x + 3, 0, 6) / 6};
}

Results hardswish_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self");
  return {where(x <= -3, 0, where(x >= 3, g, g * (x / 3 + 0.5)))};  // of a NaN: NaN
}

Results hardtanh(const OpCall& call) {
  return {clamped(call.tensor("self"), call.number("min_val"), call.number("max_val"))};
}

Results hardtanh_backward(const OpCall& call) {
  const Expr x = call.wide("self");
  const Expr inside = (x > call.number("min_val")) & (x < call.number("max_val"));
  return {where(inside, call.tensor("grad_output"), 0)};
}

Results leaky_relu(const OpCall& call) {
  const Expr x = call.wide("self");
  return {where(x > 0, x, x * call.number("negative_slope"))};
}

Results leaky_relu_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self");
  return {where(x > 0, g, g * call.number("negative_slope"))};
}

// The second result, e^-|x|, is kept for the backward on the CPU only.
Results log_sigmoid(const OpCall& call) {
  const Expr x = call.wide("self");
  if (!x.type().device.is_cpu()) return {};
  const Expr z = exp(-abs(x));
  return {clamp_max(x, 0) - log1p(z), z};
}

Results log_sigmoid_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self"), z = call.wide("buffer");
  if (!x.type().device.is_cpu()) return {};
  const Expr share = z / (z + 1);
  return {where(x < 0, 1 - share, share) * g};
}

Results mish(const OpCall& call) {
  const Expr x = call.wide("self");
  return {x * tanh(log1p(exp(x)))};
}

Results mish_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self");
  const Expr t = tanh(log1p(exp(x)));
  return {g * (t + x * logistic(x) * (1 - t * t))};
}

Results prelu(const OpCall& call) {
  const Expr x = call.wide("self"), w = call.wide("weight");
  return {where(x > 0, x, w * x)};
}

Results prelu_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self"), w = call.wide("weight");
  return {where(x > 0, g, w * g), where(x > 0, 0, x * g)};
}

Results relu(const OpCall& call) {
  return {call.builder().op("clamp_min", {call.tensor("self"), 0})};
}

Results sigmoid_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), y = call.wide("output");
  return {g * (1 - y) * y};
}

Results silu(const OpCall& call) {
  const Expr x = call.wide("self");
  return {x / (exp(-x) + 1)};
}

Results silu_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self");
  const Expr s = logistic(x);
  return {g * s * (x * (1 - s) + 1)};
}

Results softplus(const OpCall& call) {
  const Expr x = call.wide("self");
  const double beta = call.number("beta");
  const Expr scaled = x * beta;
  return {where(scaled > call.number("threshold"), x, log1p(exp(scaled)) / beta)};
}

Results softplus_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), scaled = call.wide("self") * call.number("beta");
  const Expr z = exp(scaled);
  return {where(scaled > call.number("threshold"), g, g * z / (z + 1))};
}

Results softshrink(const OpCall& call) {
  const Expr x = call.wide("self");
  const double limit = call.number("lambd");
  // A NaN stays. No zero is negative, as in eager's vectors.
  return {where(x > limit, x - limit, where(x < -limit, x + limit, abs(x) * 0))};
}

Results softshrink_backward(const OpCall& call) {
  return {where(beyond(call.tensor("self"), call.number("lambd")), call.tensor("grad_output"), 0)};
}

Results tanh_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), y = call.wide("output");
  return {g * (1 - y * y)};
}

Results threshold(const OpCall& call) {
  const Expr x = call.tensor("self");
  return {where(x <= call.number("threshold"), call.number("value"), x)};
}

Results threshold_backward(const OpCall& call) {
  const Expr x = call.tensor("self");
  return {where(x <= call.number("threshold"), 0, call.tensor("grad_output"))};
}

}  // namespace tandem::ops::decompositions
