#include "ops/decompositions/bodies.h"
#include "ops/own/class_index.h"

#include <ATen/core/Reduction.h>

#include <cmath>

namespace tandem::ops::decompositions {
namespace {

bool averages(const OpCall& call) { return call.integer("reduction") == at::Reduction::Mean; }

/// What eager's kernel leaves of the elementwise loss, rounded to its dtype, then reduced.
Expr reduced(const OpCall& call, const Expr& loss) {
  if (call.integer("reduction") == at::Reduction::None) return loss;
  const Expr rounded = wide(to(loss, call.result(0)->dtype));
  const Expr total = sum(rounded, {}, KeepDims::no);
  return averages(call) ? total / static_cast<double>(loss.numel()) : total;
}

/// The factor of a mean. Eager's backward divides by the size of what it differentiates, even where
/// that was broadcast to a larger one.
double norm(const OpCall& call) {
  return averages(call) ? 1.0 / static_cast<double>(call.tensor("self").numel()) : 1.0;
}

/// Of a loss that picks one class per row. An ignored row points to class 0 and is not valid.
struct Rows {
  Expr target, valid, weights;  // with size 1 in the dimension of the classes
  int64_t dim;                  // of the classes
};

/// libtorch's kernel takes bytes, too, and raises for other integers.
bool has_index_targets(const OpCall& call) {
  return call.tensor("target").dtype() == c10::ScalarType::Long;
}

Rows rows(const OpCall& call, const Expr& x) {
  Rows result;
  result.dim = x.rank() == 1 ? 0 : 1;
  const Expr target = unsqueeze(call.tensor("target"), result.dim);
  result.valid = !equal(target, static_cast<double>(call.integer("ignore_index")));
  result.target = call.builder().op(kClassIndex.name(),
                                    {target, x.size(result.dim), call.integer("ignore_index")});
  if (call.has("weight")) {
    const Expr weight = call.wide("weight");
    std::vector<int64_t> flat{result.target.numel()};
    const Expr picked = call.builder().op("index_select", {weight, 0, view(result.target, flat)});
    result.weights = view(picked, result.target.sizes());
  } else {
    result.weights = call.builder().full(result.target.sizes(), 1, x.dtype(), x);
  }
  return result;
}

}  // namespace

Results binary_cross_entropy_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self"), y = call.wide("target");
  constexpr double kSmallest = 1e-12F;
  Expr dx = g * (x - y) / clamp_min((1 - x) * x, kSmallest);
  if (call.has("weight")) dx = to(dx, call.result(0)->dtype) * call.tensor("weight");
  return {averages(call) ? dx / static_cast<double>(x.numel()) : dx};
}

// Eager's own is made of these ops: each result is rounded.
Results binary_cross_entropy_with_logits(const OpCall& call) {
  const Expr x = call.tensor("self"), y = call.tensor("target");
  const Expr z = wide(x);
  Expr log_sigmoid = to(clamp_max(z, 0) - log1p(exp(-abs(z))), x.dtype());
  if (call.has("pos_weight")) log_sigmoid = log_sigmoid * ((call.tensor("pos_weight") - 1) * y + 1);
  Expr loss = (1 - y) * x - log_sigmoid;
  if (call.has("weight")) loss = loss * call.tensor("weight");
  return {reduced(call, loss)};
}

Results huber_loss(const OpCall& call) {
  const double delta = call.number("delta");
  const Expr z = abs(call.wide("self") - call.wide("target"));
  return {reduced(call, where(z <= delta, z * 0.5 * z, (z - 0.5 * delta) * delta))};
}

Results huber_loss_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self") - call.wide("target");
  const double delta = call.number("delta"), n = norm(call);
  const Expr beyond = g * n * delta;
  return {where(x < -delta, -beyond, where(x > delta, beyond, x * n * g))};
}

Results mse_loss(const OpCall& call) {
  const Expr error = call.wide("self") - call.wide("target");
  return {reduced(call, error * error)};
}

Results mse_loss_backward(const OpCall& call) {
  const Expr error = call.wide("self") - call.wide("target");
  return {error * (2 * norm(call)) * call.wide("grad_output")};
}

Results nll_loss(const OpCall& call) {
  if (!has_index_targets(call)) return {};
  const Expr x = call.wide("self");
  const auto [target, valid, weights, dim] = rows(call, x);
  const Expr picked = call.builder().op("gather", {x, dim, target});
  const Expr loss = where(valid, -(picked * weights), 0);
  const ir::TensorType& result = *call.result(0);
  if (call.integer("reduction") == at::Reduction::None && x.rank() > 1)
    return {squeeze(loss, dim), call.builder().full({}, 0, call.result(1)->dtype, x)};
  const Expr total_weight = sum(where(valid, weights, 0), {}, KeepDims::no);
  const Expr total = sum(loss, {}, KeepDims::no);
  return {view(averages(call) ? total / total_weight : total, result.static_sizes()), total_weight};
}

// A comparison with the class numbers instead of a scatter: every element is written once.
Results nll_loss_backward(const OpCall& call) {
  if (!has_index_targets(call)) return {};
  const Expr x = call.wide("self");
  const auto [target, valid, weights, dim] = rows(call, x);
  Expr g = call.wide("grad_output");
  if (averages(call)) g = g / call.wide("total_weight");
  if (g.rank() > 0) g = unsqueeze(g, dim);
  const Expr share = where(valid, -(weights * g), 0);
  std::vector<int64_t> shape(static_cast<size_t>(x.rank()), 1);
  shape[static_cast<size_t>(dim)] = x.size(dim);
  const Expr classes = call.builder().op("arange", {x.size(dim)},
                                         {{"dtype", target.dtype()}, {"device", x.type().device}});
  return {where(equal(target, view(classes, shape)), share, 0)};
}

Results smooth_l1_loss(const OpCall& call) {
  const double beta = call.number("beta");
  const Expr z = abs(call.wide("self") - call.wide("target"));
  if (beta == 0) return {reduced(call, z)};
  return {reduced(call, where(z < beta, z * 0.5 * z / beta, z - 0.5 * beta))};
}

Results smooth_l1_loss_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), x = call.wide("self") - call.wide("target");
  const double beta = call.number("beta"), n = norm(call);
  return {where(x <= -beta, g * -n, where(x >= beta, g * n, x * n * g / beta))};
}

}  // namespace tandem::ops::decompositions
