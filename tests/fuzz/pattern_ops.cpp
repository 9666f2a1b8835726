#include "fuzz/custom_functions.h"
#include "fuzz/op.h"
#include "fuzz/patterns.h"

#include <ATen/ScalarOps.h>

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {
namespace {

void add(std::vector<Op>& all, ProgramPattern pattern, std::vector<Op> ops) {
  for (Op& op : ops) {
    op.only_in = pattern;
    all.push_back(op);
  }
}

}  // namespace

/// Without a pattern for its operands an op is not drawn: the generator places it.
std::vector<Op> pattern_ops() {
  using enum ProgramPattern;
  using namespace patterns;
  std::vector<Op> all;
  add(all, LeafViews,
      {OP("leaf.part", nullptr, kView, x.narrow(0, i, j).view(s).requires_grad_())});
  add(all, EntryReuse, {OP("as_integers", nullptr, kView | kNoGradient, x.detach().view(t))});
  // What the backward reads is the leaf's memory, seen otherwise than the leaf sees it.
  add(all, SetData,
      {OP("square.flat", floating, kPlain, x.flatten() * x.flatten()),
       OP("square.unsqueezed", floating, kPlain, x.unsqueeze(0) * x.unsqueeze(0)),
       OP("square.transposed", matrix, kPlain, x.t() * x.t())});
  add(all, MixedBackward,
      {OP("custom.mixes", floating, kCustom, MixesGradients::apply(x)),
       OP("custom.divides", same_sizes, kCustom, DividesGradients::apply(x, y)),
       OP("custom.projects", floating, kCustom | kRounds, ProjectsGradients::apply(x))});
  add(all, UndefinedTangents,
      {OP("custom.asks", floating, kCustom, AsksForGradients::apply(x)),
       OP("custom.passes_undefined", same_sizes, kCustom, PassesUndefined::apply(x, y))});
  add(all, LazyViews,
      {OP("neg_view", floating, kView, at::_neg_view(x)),
       OP("imag.conj", complex, kView, at::imag(x.conj())),
       OP("real.conj", complex, kView, at::real(x.conj())), OP("mH", matrix, kView, x.mH()),
       OP("conj.select", complex, kView, x.conj().unsqueeze(0).select(0, 0)),
       OP("view_as_real.resolved", complex, kView, at::view_as_real(x.resolve_conj())),
       OP("conj_physical", complex, kPlain, x.conj_physical()),
       OP("resolve_neg", floating, kPlain, x.resolve_neg()),
       OP("mul.conj", complex_pair, kPlain, x.conj() * y),
       OP("add.complex", complex_pair, kPlain, x + y),
       OP("imag.conj.add_", write_complex, kInPlace | kNoResult, at::imag(x.conj()).add_(c)),
       OP("imag.conj.mul_", write_complex, kInPlace | kNoResult, at::imag(x.conj()).mul_(c)),
       OP("real.conj.mul_", write_complex, kInPlace | kNoResult, at::real(x.conj()).mul_(c)),
       OP("conj.mul_", write_complex, kInPlace | kNoResult, x.conj().mul_(c)),
       OP("conj.copy_", write_complex_pair, kInPlace | kNoOverlap | kNoResult, x.conj().copy_(y)),
       OP("complex.copy_", write_complex_pair, kInPlace | kNoOverlap, x.copy_(y)),
       OP("complex.add_", write_complex_pair, kInPlace | kNoOverlap, x.add_(y)),
       OP("neg_view.add_", write, kInPlace | kNoResult, at::_neg_view(x).add_(c)),
       OP("neg_view.zero_", write, kInPlace | kNoResult, at::_neg_view(x).zero_())});
  add(all, WrappedNumbers,
      {OP("wrapped", sizes_only, kNoGradient, at::native::wrapped_scalar_tensor(c)),
       OP("wrapped.int", sizes_only, kNoGradient, at::native::wrapped_scalar_tensor(i)),
       OP("wrapped.bool", sizes_only, kNoGradient, at::native::wrapped_scalar_tensor(j != 0)),
       OP("wrapped.add", numeric, kPlain, at::native::wrapped_scalar_tensor(c) + x),
       OP("wrapped.mul", numeric, kPlain, x * at::native::wrapped_scalar_tensor(c)),
       OP("wrapped.where", with_mask, kPlain,
          at::where(y, x, at::native::wrapped_scalar_tensor(c)))});
  add(all, ShortScalars,
      {OP("scalar", scalar, kNoGradient, at::scalar_tensor(c, at::TensorOptions(t))),
       OP("to.half", floating, kDiscontinuous, x.to(at::kHalf)),
       OP("to.short", floating, kDiscontinuous, x.to(at::kBFloat16)),
       OP("scalar.mul", with_scalar, kPlain, y * x), OP("mul.scalar", with_scalar, kPlain, x * y),
       OP("scalar.add", with_scalar, kPlain, y + x), OP("scalar.sub", with_scalar, kPlain, y - x),
       OP("sub.scalar", with_scalar, kPlain, x.sub(y, 2)),
       OP("scalar.div", with_scalar, kPlain, y / (x * x + 1)),
       OP("scalar.maximum", with_scalar, kEitherZero, at::maximum(y, x)),
       OP("scalar.where", with_scalar, kPlain, at::where(x > 0, y, x)),
       OP("scalar.lt", with_scalar, kDiscontinuous | kNoGradient, y < x),
       OP("number.mul", with_number, kPlain, at::scalar_tensor(c, at::TensorOptions(t)) * x),
       OP("number.add", with_number, kPlain, x + at::scalar_tensor(c, at::TensorOptions(t))),
       OP("number.pow", with_number, kRounds,
          (x.abs() + 0.5).pow(at::scalar_tensor(2, at::TensorOptions(t)))),
       OP("scalar.mul_", write_scalar, kInPlace | kNoOverlap, x.mul_(y)),
       OP("scalar.add_", write_scalar, kInPlace | kNoOverlap, x.add_(y))});
  add(all, SpecialValues,
      {OP("special", sizes_only, kNoGradient,
          torch::tensor({0.0, -0.0, INFINITY, -INFINITY, NAN}, at::TensorOptions(t))),
       OP("maximum.neg", floating, kEitherZero, x.maximum(-x)),
       OP("minimum.neg", floating, kEitherZero, x.minimum(-x)),
       OP("fmax.neg", floating, kPlain, x.fmax(-x)),
       OP("fmin", floating_pair, kPlain, x.fmin(y)),
       OP("clamp.zeros", floating, kPlain, x.clamp(-0.0, 0.0)),
       OP("clamp_min.zero", floating, kPlain, x.clamp_min(0.0)),
       OP("clamp_max.zero", floating, kPlain, x.clamp_max(-0.0)),
       OP("amax.both", floating_dim, kEitherZero, at::stack({x, -x}).amax(0)),
       OP("amin.both", floating_dim, kEitherZero, at::stack({x, -x}).amin(0)),
       OP("copysign", floating_pair, kTellsZeros, x.copysign(y.detach())),
       OP("signbit", floating, kNoGradient | kTellsZeros, x.signbit()),
       OP("isfinite", floating, kNoGradient, x.isfinite()),
       OP("nan_to_num.values", floating, kPlain, x.nan_to_num(c, 2.0, -2.0)),
       OP("mul.zero", floating, kPlain, x * 0),
       OP("div.plain", floating_pair, kTellsZeros, x / y),
       OP("pow.half", floating, kRounds, x.to(at::kHalf).pow(0.5)),
       OP("pow.minus_half", floating, kRounds, x.to(at::kHalf).pow(-0.5)),
       OP("pow.root", floating, kRounds, x.pow(0.5)),
       OP("sqrt.plain", floating, kEagerBits, x.sqrt()),
       OP("to.int", floating, kDiscontinuous | kNoGradient, x.to(at::kInt)),
       OP("relu_.zero", write, kInPlace, x.neg_().relu_())});
  add(all, LargeMean,
      {OP("rows.layer_norm", floating_dim, kRounds, at::layer_norm(x, {x.size(-1)})),
       OP("rows.std", floating_dim, kRounds, x.std(-1, /*unbiased=*/false)),
       OP("rows.var", floating_dim, kRounds, x.var(-1, /*unbiased=*/false)),
       OP("rows.softmax", floating_dim, kRounds, x.softmax(-1)),
       OP("rows.logsumexp", floating_dim, kRounds, x.logsumexp(-1)),
       OP("rows.mean", floating_dim, kRounds, x.mean(-1)),
       OP("long.sum", floating, kRounds, (x.flatten().select(0, 0) * 0 + 0.7).expand(60000).sum()),
       OP("long.mean", floating, kRounds,
          (x.flatten().select(0, 0) * 0 + 0.7).expand(60000).mean())});
  add(all, UnfitNumbers,
      {OP("unfit.masked_fill", unfit, kDiscontinuous, x.to(t).masked_fill(x.ne(0), c)),
       OP("unfit.masked_fill_", unfit, kDiscontinuous, x.to(t).clone().masked_fill_(x.ne(0), c)),
       OP("unfit.fill_", unfit, kDiscontinuous, x.to(t).clone().fill_(c)),
       OP("unfit.full", unfit, kDiscontinuous | kNoGradient,
          at::full({2}, c, at::TensorOptions(t))),
       OP("unfit.full_like", unfit, kDiscontinuous | kNoGradient, at::full_like(x.to(t), c)),
       OP("unfit.scalar", unfit, kDiscontinuous | kNoGradient,
          at::scalar_tensor(c, at::TensorOptions(t))),
       OP("unfit.clamp", unfit, kDiscontinuous, x.to(t).clamp(-1, c)),
       OP("unfit.clamp_max_", unfit, kDiscontinuous, x.to(t).clone().clamp_max_(c)),
       OP("unfit.alpha", unfit, kDiscontinuous, x.to(t).add(x.to(t), c)),
       OP("unfit.add_", unfit, kDiscontinuous, x.to(t).clone().add_(c)),
       OP("unfit.mul", unfit, kDiscontinuous, x.to(t) * c),
       OP("unfit.pow", unfit, kDiscontinuous, x.to(t).pow(c)),
       OP("unfit.where", unfit, kDiscontinuous, at::where(x.ne(0), x.to(t), c)),
       OP("unfit.eq", unfit, kDiscontinuous | kNoGradient, x.to(t).eq(c)),
       OP("unfit.threshold", unfit, kDiscontinuous, at::threshold(x.to(t), 0.5, c)),
       OP("unfit.pad", unfit, kDiscontinuous, at::constant_pad_nd(x.to(t).flatten(), {1, 0}, c)),
       OP("unfit.index_fill", unfit, kDiscontinuous,
          x.to(t).flatten().index_fill(0, at::arange(1), c)),
       OP("unfit.write_", unfit, kInPlace | kDiscontinuous, x.masked_fill_(x.ne(0), c)),
       OP("unfit.fill.write_", unfit, kInPlace | kDiscontinuous, x.fill_(c))});
  add(all, Empties,
      {OP("empty.slice", anything_dim, kView, x.slice(i, k, k)),
       OP("empty.narrow", anything_dim, kView, x.narrow(i, k, 0)),
       OP("empty.reshape", anything_dim, kView, x.narrow(i, k, 0).reshape({0})),
       OP("empty.unsqueeze", anything, kView, x.flatten().slice(0, 1, 1).unsqueeze(0)),
       OP("empty.index_select", anything_dim, kPlain, x.index_select(i, at::arange(0))),
       OP("empty.index", anything_dim, kPlain, x.index({at::arange(0)})),
       OP("empty.gather", floating_dim, kPlain,
          x.gather(i, at::zeros({0}, at::kLong).expand(x.narrow(i, 0, 0).sizes()))),
       OP("empty.take", floating, kPlain, x.take(at::arange(0))),
       OP("empty.index_add", floating_dim, kPlain,
          x.index_add(i, at::arange(0), x.narrow(i, 0, 0))),
       OP("empty.index_copy", floating_dim, kPlain,
          x.index_copy(i, at::arange(0), x.narrow(i, 0, 0))),
       OP("empty.index_put", floating_dim, kPlain, x.index_put({at::arange(0)}, x.narrow(0, 0, 0))),
       OP("empty.cat", floating_dim, kPlain, at::cat({x, x.narrow(i, 0, 0)}, i)),
       OP("empty.cat.plain", floating_dim, kPlain,
          at::cat({at::empty({0}, x.options().requires_grad(false)), x.narrow(i, 0, 0)}, i)),
       OP("empty.sum", floating_dim, kPlain, x.narrow(i, 0, 0).sum(i)),
       OP("empty.sum.all", floating_dim, kPlain, x.narrow(i, 0, 0).sum()),
       OP("empty.prod", floating_dim, kOtherFormula | kLosesZeros, x.narrow(i, 0, 0).prod(i)),
       OP("empty.mean", floating_dim, kPlain, x.narrow(i, 0, 0).mean()),
       OP("empty.softmax", floating_dim, kPlain, x.narrow(i, 0, 0).softmax(i)),
       OP("empty.cumsum", floating_dim, kPlain, x.narrow(i, 0, 0).cumsum(i)),
       OP("empty.mm", matrix, kRounds, x.narrow(0, 0, 0).mm(x.t())),
       OP("empty.mm.inner", matrix, kPlain, x.narrow(1, 0, 0).mm(x.narrow(1, 0, 0).t())),
       OP("empty.matmul", matrix, kPlain,
          x.narrow(0, 0, 0).narrow(1, 0, 0).matmul(x.new_zeros({5, 0, 0}))),
       OP("empty.addmm", matrix, kPlain,
          at::addmm(x.narrow(1, 0, 1), x.narrow(1, 0, 0), x.narrow(0, 0, 1).narrow(1, 0, 0).t(), c,
                    d)),
       OP("empty.bmm", matrix, kPlain,
          x.unsqueeze(0).narrow(2, 0, 0).bmm(x.unsqueeze(0).narrow(1, 0, 0).narrow(2, 0, 1))),
       OP("empty.linear", matrix, kPlain, at::linear(x.narrow(0, 0, 0), x)),
       OP("empty.embedding", matrix, kPlain, at::embedding(x, at::zeros({0, 2}, at::kLong))),
       OP("empty.layer_norm", matrix, kPlain, at::layer_norm(x.narrow(0, 0, 0), {x.size(1)})),
       OP("empty.mse_loss", floating_dim, kPlain,
          at::mse_loss(x.narrow(i, 0, 0), x.detach().narrow(i, 0, 0), at::Reduction::Sum)),
       OP("empty.zeros", sizes_only, kNoGradient, at::zeros({0, i}, at::TensorOptions(t))),
       OP("empty.arange", sizes_only, kNoGradient, at::arange(0, at::TensorOptions(t))),
       OP("empty.write_", write_dim, kInPlace, x.narrow(i, k, 0).add_(c)),
       OP("empty.zero_", write_dim, kInPlace, x.slice(i, k, k).zero_()),
       OP("empty.index_add_", write_dim, kInPlace,
          x.index_add_(i, at::arange(0), x.narrow(i, 0, 0).detach().clone())),
       OP("empty.index_fill_", write_dim, kInPlace, x.index_fill_(i, at::arange(0), c)),
       OP("empty.copy_", write_dim, kInPlace | kNoOverlap,
          x.narrow(i, k, 0).copy_(y.narrow(i, 0, 0)))});
  add(all, HostState,
      {OP("host.mul", floating, kPlain, x * host_number),
       OP("host.pow", floating, kRounds, (x.abs() + 0.5).pow(host_number + 1)),
       OP("host.branch", floating, kPlain, host_number > 1 ? x.mul(x) : x.neg()),
       OP("host.tensor", floating, kPlain, x * host_tensor),
       OP("host.tensor.add", floating, kPlain, x.add(host_tensor, 2)),
       OP("host.mul_", write, kInPlace, x.mul_(host_number))});
  add(all, ChangingSizes, changing_sizes_ops());
  add(all, RefusedData,
      {OP("refused.index_select", floating_dim, kDiscontinuous,
          x.index_select(i, at::full({2}, x.size(i) + k, at::kLong))),
       OP("refused.gather", floating_dim, kDiscontinuous,
          x.gather(i, at::full(x.sizes(), x.size(i), at::kLong))),
       OP("refused.take", floating, kDiscontinuous, x.take(at::full({1}, x.numel(), at::kLong))),
       OP("refused.index", floating_dim, kDiscontinuous,
          x.index({at::full({2}, x.size(0), at::kLong)})),
       OP("refused.embedding", matrix, kDiscontinuous,
          at::embedding(x, at::full({2}, x.size(0), at::kLong))),
       OP("refused.scatter", floating_dim, kDiscontinuous,
          x.scatter(i, at::full(x.sizes(), x.size(i), at::kLong), c)),
       OP("refused.index_add", floating_dim, kDiscontinuous,
          x.index_add(i, at::full({x.size(i)}, x.size(i), at::kLong), x)),
       OP("refused.nll_loss", classes, kRounds | kDiscontinuous,
          at::nll_loss(x.log_softmax(-1), y + x.size(-1))),
       OP("refused.cross_entropy", classes, kRounds | kDiscontinuous,
          at::cross_entropy_loss(x, y - 1)),
       OP("refused.remainder", integral, kNoGradient, x.remainder(at::zeros_like(x))),
       OP("refused.floor_divide", integral, kNoGradient, at::floor_divide(x, at::zeros_like(x))),
       OP("refused.fmod", integral, kNoGradient, x.fmod(0)),
       OP("refused.binary_cross_entropy", floating, kRounds | kDiscontinuous,
          at::binary_cross_entropy(x.sigmoid() + 2, at::zeros_like(x)))});
  add(all, InferenceTensors,
      {OP("inference.narrow", anything_dim, kView, x.narrow(i, 0, 1)),
       OP("inference.view", anything, kView, x.view({-1})),
       OP("inference.view.add_", write, kInPlace | kNoResult, x.view({-1}).add_(c)),
       OP("inference.alias.mul_", write, kInPlace | kNoResult, x.alias().mul_(c)),
       OP("inference.clone", anything, kPlain, x.clone())});
  add(all, BackwardWrites,
      {OP("custom.counts", write_in_backward, kCustom | kInPlace, CountsBackwards::apply(y, x)),
       OP("custom.averages", write_in_backward, kCustom | kInPlace,
          AveragesGradients::apply(y, x))});
  add(all, SpreadNumbers,
      {OP("spread.dot", floating, kRounds, at::dot(x.flatten(), x.flatten()) * 0.01),
       OP("spread.mean", floating, kRounds, x.mean() * 2),
       OP("spread.number", spread, kPlain, x.flatten().select(0, 0).expand(y.sizes()) * c),
       OP("spread.add", spread, kPlain, y + x.flatten().select(0, 0).expand(y.sizes()) * c),
       OP("spread.back", spread, kRounds,
          y.sin() + at::dot(y.sin().flatten(), y.sin().flatten()).expand(y.sizes()) * (c * 0.01)),
       OP("spread.where", spread, kDiscontinuous,
          at::where(y > 0, y, x.flatten().select(0, 0).expand(y.sizes()) + c)),
       OP("spread.sin", spread, kRounds,
          (x.flatten().select(0, 0).expand(y.sizes()) + c).sin() * y)});
  return all;
}

}  // namespace tandem::fuzz
