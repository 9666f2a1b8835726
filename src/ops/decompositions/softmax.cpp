#include "ops/decompositions/bodies.h"

#include <cmath>
#include <limits>

namespace tandem::ops::decompositions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The operand of a softmax in the dtype to compute in; `half_to_float` asks for the wider one.
Expr operand(const OpCall& call) { return call.wide("self"); }

Expr softmax_of(const Expr& x, const Expr& largest, int64_t dim) {
  const Expr e = exp(x - largest);
  // One division a row. The sum is at least 1, so the reciprocal loses nothing but half a unit.
  return e * reciprocal(sum(e, {dim}, KeepDims::yes));
}

}  // namespace

Results log_softmax(const OpCall& call) {
  const Expr x = operand(call);
  const int64_t dim = call.integer("dim");
  const Expr shifted = x - amax(x, {dim}, KeepDims::yes);
  return {shifted - log(sum(exp(shifted), {dim}, KeepDims::yes))};
}

Results log_softmax_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), y = call.wide("output");
  return {g - exp(y) * sum(g, {call.integer("dim")}, KeepDims::yes)};
}

Results logsumexp(const OpCall& call) {
  const Expr x = call.wide("self");
  if (c10::isIntegralType(x.dtype(), /*includeBool=*/true)) return {};
  const std::vector<int64_t> dims = call.integers("dim");
  const Expr largest = amax(x, dims, KeepDims::yes);
  // Infinite rows would subtract infinity from itself.
  const Expr shift = where(equal(abs(largest), kInfinity), 0, largest);
  const Expr result = log(sum(exp(x - shift), dims, KeepDims::yes)) + shift;
  return {view(result, call.result(0)->static_sizes())};
}

// A row of nothing but -inf gives zeros.
Results safe_softmax(const OpCall& call) {
  if (call.has("dtype")) return {};
  const Expr x = operand(call);
  const int64_t dim = call.integer("dim");
  const Expr largest = amax(x, {dim}, KeepDims::yes);
  return {where(equal(largest, -kInfinity), 0, softmax_of(x, largest, dim))};
}

Results softmax(const OpCall& call) {
  const Expr x = operand(call);
  const int64_t dim = call.integer("dim");
  return {softmax_of(x, amax(x, {dim}, KeepDims::yes), dim)};
}

Results softmax_backward(const OpCall& call) {
  const Expr g = call.wide("grad_output"), y = call.wide("output");
  return {(g - sum(g * y, {call.integer("dim")}, KeepDims::yes)) * y};
}

}  // namespace tandem::ops::decompositions
