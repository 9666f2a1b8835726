#include "ops/decompositions/table.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/decompositions/bodies.h"
#include "ops/numbers_fit.h"

#include <string>
#include <utility>

// The table of decompositions: one row per overload. docs/reference/decompositions.md is its page.

namespace tandem {
namespace ops {
namespace {

namespace d = decompositions;

constexpr bool kExact = true;

constexpr DecompositionRow kRows[] = {
    // ---- activations: x input, y result, g gradient ----
    {"elu", d::elu, kExact, "where(x < 0, alpha scale expm1(input_scale x), scale x)"},
    {"elu_backward", d::elu_backward, kExact,
     "where(y > 0, scale g, g input_scale (y + alpha scale))"},
    {"gelu", d::gelu, kExact, "x/2 (1 + erf(x / sqrt 2)), or with tanh"},
    {"gelu_backward", d::gelu_backward, kExact, "g (cdf(x) + x pdf(x)), or with tanh"},
    {"glu", d::glu, kExact, "a / (1 + e^-b) of the halves a, b"},
    {"glu_backward", d::glu_backward, kExact, "cat(s g, (1 - s) s a g), s = sigmoid(b)"},
    {"hardshrink", d::hardshrink, kExact, "where(|x| <= lambda, 0, x)"},
    {"hardshrink_backward", d::hardshrink_backward, kExact, "where(|x| > lambda, g, 0)"},
    {"hardsigmoid", d::hardsigmoid, kExact, "clamp(x + 3, 0, 6) / 6"},
    {"hardsigmoid_backward", d::hardsigmoid_backward, kExact, "where(|x| < 3, g / 6, 0)"},
    {"hardswish", d::hardswish, kExact, "x clamp(x + 3, 0, 6) / 6"},
    {"hardswish_backward", d::hardswish_backward, kExact,
     "0, g (x/3 + 1/2) or g, left of -3, up to 3, beyond"},
    {"hardtanh", d::hardtanh, kExact, "clamp(x, min, max)"},
    {"hardtanh_backward", d::hardtanh_backward, kExact, "where(min < x < max, g, 0)"},
    {"leaky_relu", d::leaky_relu, kExact, "where(x > 0, x, slope x)"},
    {"leaky_relu_backward", d::leaky_relu_backward, kExact, "where(x > 0, g, slope g)"},
    {"log_sigmoid_backward", d::log_sigmoid_backward, kExact,
     "where(x < 0, 1 - r, r) g, r = z / (1 + z)"},
    {"log_sigmoid_forward", d::log_sigmoid, kExact, "min(x, 0) - log1p(z), z = e^-|x|"},
    {"mish", d::mish, kExact, "x tanh(log1p(e^x))"},
    {"mish_backward", d::mish_backward, kExact,
     "g (t + x s (1 - t^2)), t = tanh(log1p(e^x)), s = 1 / (1 + e^-x)"},
    {"_prelu_kernel", d::prelu, kExact, "where(x > 0, x, w x)"},
    {"_prelu_kernel_backward", d::prelu_backward, kExact,
     "where(x > 0, g, w g), where(x > 0, 0, x g)"},
    {"relu", d::relu, kExact, "clamp_min(x, 0)"},
    {"sigmoid_backward", d::sigmoid_backward, kExact, "g (1 - y) y"},
    {"silu", d::silu, kExact, "x / (1 + e^-x)"},
    {"silu_backward", d::silu_backward, kExact, "g s (1 + x (1 - s)), s = 1 / (1 + e^-x)"},
    {"softplus", d::softplus, kExact, "where(beta x > threshold, x, log1p(e^(beta x)) / beta)"},
    {"softplus_backward", d::softplus_backward, kExact,
     "where(beta x > threshold, g, g z / (z + 1)), z = e^(beta x)"},
    {"softshrink", d::softshrink, kExact, "x - lambda, x + lambda or 0"},
    {"softshrink_backward", d::softshrink_backward, kExact, "where(|x| > lambda, g, 0)"},
    {"tanh_backward", d::tanh_backward, kExact, "g (1 - y^2)"},
    {"threshold", d::threshold, kExact, "where(x <= threshold, value, x)"},
    {"threshold_backward", d::threshold_backward, kExact, "where(x <= threshold, 0, g)"},

    // ---- normalisation, statistics: r = 1 / sqrt(var + eps), n elements per statistic ----
    {"_batch_norm_with_update_functional", d::batch_norm_update_functional, kExact,
     "(x - mean) r w + b; new running statistics"},
    {"_native_batch_norm_legit.no_stats", d::batch_norm_no_stats, kExact, "(x - mean) r w + b"},
    {"_native_batch_norm_legit_functional", d::batch_norm_functional, kExact,
     "(x - mean) r w + b; new running statistics"},
    {"_native_batch_norm_legit_no_training", d::batch_norm_evaluated, kExact,
     "x f + (b - running mean f), f = r w"},
    {"batch_norm_backward", d::batch_norm_backward, kExact,
     "(g - sum g / n - (x - mean) r^2 dot / n) r w, dot r, sum g; dot = sum g (x - mean)"},
    {"mean", d::mean_of_all, kExact, "sum x / n"},
    {"mean.dim", d::mean_of_dims, kExact, "sum x / n"},
    {"native_batch_norm_backward", d::batch_norm_backward, kExact, "as batch_norm_backward"},
    {"native_group_norm", d::group_norm, kExact, "(x - mean) r w + b over groups of channels"},
    {"native_group_norm_backward", d::group_norm_backward, kExact,
     "as native_layer_norm_backward over groups"},
    {"native_layer_norm", d::layer_norm, kExact, "(x - mean) r w + b over the last dimensions"},
    {"native_layer_norm_backward", d::layer_norm_backward, kExact,
     "(gw - sum gw / n - h sum(gw h) / n) r, sum g h, sum g; h = (x - mean) r"},
    {"std.correction", d::standard_deviation, kExact, "sqrt(var)"},
    {"var.correction", d::variance, kExact, "sum (x - mean)^2 / (n - correction)"},
    {"var_mean.correction", d::variance_and_mean, kExact,
     "sum (x - mean)^2 / (n - correction), sum x / n"},

    // ---- softmax: m the largest of a row ----
    {"_log_softmax", d::log_softmax, kExact, "x - m - log sum e^(x - m)"},
    {"_log_softmax_backward_data", d::log_softmax_backward, kExact, "g - e^y sum g"},
    {"_safe_softmax", d::safe_softmax, kExact, "as _softmax; a row of -inf gives 0"},
    {"_softmax", d::softmax, kExact, "e^(x - m) (1 / sum e^(x - m))"},
    {"_softmax_backward_data", d::softmax_backward, kExact, "(g - sum g y) y"},
    {"logsumexp", d::logsumexp, kExact, "log sum e^(x - m) + m"},

    // ---- losses: e = x - target, n elements if the mean is taken, else 1 ----
    {"binary_cross_entropy_backward", d::binary_cross_entropy_backward, kExact,
     "g e / max((1 - x) x, 1e-12) w / n"},
    {"binary_cross_entropy_with_logits", d::binary_cross_entropy_with_logits, kExact,
     "(1 - target) x - log_sigmoid(x) (1 + (pos_weight - 1) target)"},
    {"huber_loss", d::huber_loss, kExact, "where(|e| <= delta, e^2 / 2, delta (|e| - delta / 2))"},
    {"huber_loss_backward", d::huber_loss_backward, kExact, "g clamp(e, -delta, delta) / n"},
    {"mse_loss", d::mse_loss, kExact, "e^2"},
    {"mse_loss_backward", d::mse_loss_backward, kExact, "2 e g / n"},
    {"nll_loss2d_backward", d::nll_loss_backward, kExact,
     "as nll_loss_backward, classes in dimension 1"},
    {"nll_loss2d_forward", d::nll_loss, kExact, "as nll_loss_forward, classes in dimension 1"},
    {"nll_loss_backward", d::nll_loss_backward, kExact,
     "where(class == target, -w g / total weight, 0)"},
    {"nll_loss_forward", d::nll_loss, kExact, "-x[target] w[target], reduced; sum w[target]"},
    {"smooth_l1_loss", d::smooth_l1_loss, kExact,
     "where(|e| < beta, e^2 / (2 beta), |e| - beta / 2)"},
    {"smooth_l1_loss_backward", d::smooth_l1_loss_backward, kExact, "g clamp(e / beta, -1, 1) / n"},

    // ---- dropout, products with an added term, pointwise ops of three operands ----
    {"addcdiv", d::addcdiv, kExact, "x + value a / b"},
    {"addcmul", d::addcmul, kExact, "x + value a b"},
    {"addmm", d::addmm, kExact, "alpha mm(a, b) + beta x"},
    {"baddbmm", d::baddbmm, kExact, "alpha bmm(a, b) + beta x"},
    {"native_dropout", d::dropout, kExact, "x mask / (1 - p), mask drawn as eager draws it"},
    {"native_dropout_backward", d::dropout_backward, kExact, "g mask scale"},
};

}  // namespace

std::span<const DecompositionRow> decomposition_rows() { return kRows; }

}  // namespace ops

namespace {

/// `aten::gelu` of `gelu`: how the rows are called. A UserError if libtorch has no such op.
std::string known_op(const std::string& op) {
  std::string name = op.find("::") == std::string::npos ? "aten::" + op : op;
  std::string text = name;
  text.replace(text.find("::"), 2, ".");
  if (!ir::find_op(text)) {
    const std::string near = ir::near_ops(text);
    TANDEM_REQUIRE(false, "options", "decompositions: no op is called \"", op, "\"",
                   near.empty() ? "" : "\n  near:   " + near,
                   "\n  remedy: write the name with its overload: \"aten::sum.dim_IntList\"");
  }
  return name;
}

/// The formula, where libtorch's kernel does not rather raise: for results that are no floats, and
/// for numbers that do not fit.
DecompositionBody where_libtorch_computes(std::vector<Expr> (*body)(const OpCall&)) {
  return [body](const OpCall& call) {
    const ir::TensorType* const result = call.result(0);
    const bool is_float = result == nullptr || c10::isFloatingType(result->dtype);
    if (!is_float || !ops::numbers_fit(call.builder().graph(), call.node()))
      return std::vector<Expr>{};
    return body(call);
  };
}

}  // namespace

Decompositions Decompositions::standard(Rounding rounding) {
  Decompositions table;
  for (const ops::DecompositionRow& row : ops::decomposition_rows()) {
    if (!row.exact && rounding == Rounding::eager) continue;
    const std::string name = "aten::" + std::string(row.op);
    table.rows_[name] = {.op = name,
                         .body = where_libtorch_computes(row.body),
                         .exact = row.exact,
                         .formula = std::string(row.formula)};
  }
  return table;
}

Decompositions& Decompositions::set(std::string op, DecompositionBody body) {
  const std::string name = known_op(op);
  TANDEM_REQUIRE(body, "options", "decompositions: the body for ", op, " is empty",
                 "\n  remedy: give a function, or call keep(\"", op, "\") to leave the op alone");
  rows_[name] = {.op = name, .body = std::move(body), .exact = false, .formula = "the user's"};
  return *this;
}

Decompositions& Decompositions::keep(const std::string& op) {
  const std::string name = known_op(op);
  rows_[name] = {.op = name, .body = nullptr, .exact = true, .formula = "stays"};
  return *this;
}

Decompositions& Decompositions::merge(const Decompositions& other) {
  for (const auto& [name, row] : other.rows_) rows_[name] = row;
  return *this;
}

const Decomposition* Decompositions::find(const c10::OperatorHandle& op) const {
  const c10::OperatorName& name = op.operator_name();
  const auto found =
      rows_.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == rows_.end() || !found->second.body ? nullptr : &found->second;
}

}  // namespace tandem
