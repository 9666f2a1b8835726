#include "ops/decompositions/bodies.h"
#include "ops/own/bernoulli_like.h"

namespace tandem::ops::decompositions {
namespace {

/// `beta * self + alpha * product`; a beta of zero means that `self` is not read.
Expr added(const OpCall& call, const Expr& product) {
  const double beta = call.number("beta"), alpha = call.number("alpha");
  const Expr right = alpha == 1 ? product : product * alpha;
  if (beta == 0) return right;
  const Expr self = call.tensor("self");
  return right + (beta == 1 ? self : self * beta);
}

bool is_floating(const Expr& x) { return c10::isFloatingType(x.dtype()); }

}  // namespace

Results addcdiv(const OpCall& call) {
  const Expr a = call.wide("tensor1"), b = call.wide("tensor2");
  if (!is_floating(a) || !is_floating(b)) return {};
  return {call.wide("self") + a * call.number("value") / b};
}

Results addcmul(const OpCall& call) {
  const Expr a = call.wide("tensor1"), b = call.wide("tensor2");
  if (!is_floating(a) || !is_floating(b)) return {};
  return {call.wide("self") + a * call.number("value") * b};
}

Results addmm(const OpCall& call) {
  const Expr a = call.tensor("mat1");
  if (!is_floating(a)) return {};
  return {added(call, call.builder().op("mm", {a, call.tensor("mat2")}))};
}

Results baddbmm(const OpCall& call) {
  const Expr a = call.tensor("batch1");
  if (!is_floating(a)) return {};
  return {added(call, call.builder().op("bmm", {a, call.tensor("batch2")}))};
}

// The draw is eager's: into a mask of bools that is laid out as the input, in the order of memory.
Results dropout(const OpCall& call) {
  const Expr x = call.tensor("input");
  Builder& builder = call.builder();
  if (call.has("train") && !call.flag("train"))
    return {x, builder.full(x.sizes(), 1, c10::ScalarType::Bool, x)};
  const double kept = 1.0 - call.number("p"), scale = kept == 0 ? 0 : 1.0 / kept;
  const Expr like = builder.op("empty_like", {x}, {{"dtype", c10::ScalarType::Bool}});
  const char* draw = like.type().is_contiguous() ? "bernoulli.p" : kBernoulliLike.name();
  const Expr mask = builder.op(draw, {like, kept});
  return {x * mask * scale, mask};
}

Results dropout_backward(const OpCall& call) {
  return {call.tensor("grad_output") * call.tensor("mask") * call.number("scale")};
}

}  // namespace tandem::ops::decompositions
