#include "fuzz/op.h"
#include "fuzz/patterns.h"

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {

/// Sums, norms, scans, orders: their bits depend on the layout of memory.
std::vector<Op> reduction_ops() {
  using namespace patterns;
  return {
      OP("sum", floating, kRounds, x.sum()),
      OP("sum.dim", floating_dim, kRounds, x.sum(i, j != 0)),
      OP("sum.dims", floating_dims, kRounds, x.sum(at::IntArrayRef{i, j})),
      OP("mean", floating, kRounds, x.mean()),
      OP("mean.dim", floating_dim, kRounds, x.mean(i, j != 0)),
      OP("var", floating_dim, kRounds, (x + 0.125).var(i, /*unbiased=*/false)),
      OP("std", floating_dim, kRounds, (at::stack({x, x * 0.5 + 1}).std(0, /*unbiased=*/false))),
      OP("var_mean", floating_dim, kRounds, at::var_mean(x, i, /*unbiased=*/false)),
      OP("prod", floating, kRounds | kOtherFormula | kLosesZeros, x.clamp(-1.5, 1.5).prod()),
      OP("prod.dim", floating_dim, kRounds | kOtherFormula | kLosesZeros,
         x.clamp(-1.5, 1.5).prod(i, j != 0)),
      OP("norm", floating, kRounds, x.norm()),
      OP("norm.dim", floating_dim, kRounds, x.norm(2, i)),
      OP("logsumexp", floating_dim, kRounds, x.logsumexp(i, j != 0)),
      OP("cumsum", floating_dim, kRounds, x.cumsum(i)),
      OP("cumprod", floating_dim, kRounds | kOtherFormula, x.clamp(-1.5, 1.5).cumprod(i)),
      OP("logcumsumexp", floating_dim, kRounds, x.logcumsumexp(i)),
      OP("amax", floating_dim, kPlain, x.amax(i, j != 0)),
      OP("amin", floating_dim, kPlain, x.amin(i, j != 0)),
      OP("max", floating, kOtherFormula, x.max()),
      OP("min", floating, kOtherFormula, x.min()),
      OP("max.dim", floating_dim, kDiscontinuous, x.contiguous().max(i, j != 0)),
      OP("min.dim", floating_dim, kDiscontinuous, x.contiguous().min(i, j != 0)),
      OP("median.dim", floating_dim, kDiscontinuous, x.contiguous().median(i)),
      OP("cummax", floating_dim, kDiscontinuous, x.contiguous().cummax(i)),
      OP("sort", floating_dim, kDiscontinuous, x.contiguous().sort(i)),
      OP("topk", floating_dim, kDiscontinuous, x.contiguous().topk(1, i)),
      OP("kthvalue", floating_dim, kDiscontinuous, x.contiguous().kthvalue(1, i)),
      OP("argmax", floating_dim, kDiscontinuous | kNoGradient, x.argmax(i)),
      OP("argmin", floating, kDiscontinuous | kNoGradient, x.argmin()),
      OP("argsort", floating_dim, kDiscontinuous | kNoGradient, x.argsort(i, false)),
      OP("any", floating, kDiscontinuous | kNoGradient, x.any()),
      OP("all.dim", floating_dim, kDiscontinuous | kNoGradient, x.all(i)),
      OP("count_nonzero", floating_dim, kDiscontinuous | kNoGradient,
         x.count_nonzero(std::optional<int64_t>(i))),
      OP("trace", matrix, kRounds, x.trace()),
      OP("softmax", floating_dim, kRounds, x.softmax(i)),
      OP("log_softmax", floating_dim, kRounds, x.log_softmax(i)),
      OP("renorm", floating_dim, kRounds, x.renorm(2, i, 1.5)),
      OP("dist", same_sizes, kRounds, x.dist(y + 0.25)),
      OP("nansum", floating, kRounds, x.nansum()),
      OP("diff", floating_dim, kPlain, x.diff(1, i)),
      OP("trapezoid", floating_dim, kRounds, at::trapezoid(x, 1, i)),
      OP("einsum", matrices, kRounds, at::einsum("nk,km->n", {x, y})),
  };
}

}  // namespace tandem::fuzz
