#include "fuzz/op.h"
#include "fuzz/patterns.h"

#include <algorithm>
#include <cmath>

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {

/// What users do with sizes: they ask for them as plain integers, compute with them, branch and
/// loop on them.
std::vector<Op> changing_sizes_ops() {
  using namespace patterns;
  return {
      // ---- as numbers ----
      OP("sizes.mean", floating_dim, kRounds, x.sum(i) / x.size(i)),
      OP("sizes.scale", floating_dim, kRounds, x / std::sqrt(static_cast<double>(x.size(i)) + 0.5)),
      OP("sizes.add", floating_dim, kPlain, x.add(x.size(i))),
      OP("sizes.mul", floating_dim, kPlain, x.mul(0.25 * static_cast<double>(x.size(i) % 5))),
      OP("sizes.add_", write_dim, kInPlace, x.add_(x.size(i) - 3)),

      // ---- branches and loops ----
      OP("sizes.branch", floating_dim, kPlain, x.size(i) % 4 == 0 ? x.mul(2) : x.neg()),
      OP("sizes.branch.large", floating_dim, kView, x.size(i) > 5 ? x.narrow(i, 0, 5) : x),
      OP("sizes.branch.equal", matrix, kPlain,
         x.size(0) == x.size(1) ? x.add(x.t(), 0.5) : x.mul(c)),
      OP("sizes.loop", floating_dim, kRounds,
         [&] {
           at::Tensor sum = x.select(i, 0);
           for (int64_t step = 1; step < x.size(i); ++step) {
             sum = sum * 0.5 + x.select(i, step);
           }
           return sum;
         }()),
      OP("sizes.rows.loop", matrix, kPlain,
         [&] {
           Tensors rows;
           for (int64_t row = x.size(0) - 1; row >= 0; row -= 2) rows.push_back(x.select(0, row));
           return at::stack(rows);
         }()),

      // ---- new tensors ----
      OP("sizes.arange", floating_dim, kPlain,
         x + at::arange(x.size(-1), x.options().requires_grad(false))),
      OP("sizes.linspace", floating_dim, kRounds,
         x * at::linspace(0, 1, x.size(-1), x.options().requires_grad(false))),
      OP("sizes.zeros", floating_dim, kNoGradient,
         at::zeros({x.size(i), 2}, x.options().requires_grad(false))),
      OP("sizes.new_ones", floating_dim, kNoGradient, x.new_ones({2, x.size(i) + 1})),
      OP("sizes.causal", matrix, kOtherFormula,
         x.masked_fill(at::ones({x.size(0), x.size(1)}, at::kBool).triu(1), c)),
      OP("sizes.rand", floating_dim, kRandom | kNoGradient,
         at::rand({x.size(i), 2}, g, x.options().requires_grad(false))),
      OP("sizes.noise", floating_dim, kRandom,
         x + at::randn({x.size(-1)}, g, x.options().requires_grad(false))),

      // ---- views ----
      OP("sizes.rows", floating_dim, kView, x.view({x.size(0), -1})),
      OP("sizes.columns", floating_dim, kView, x.reshape({-1, x.size(-1)})),
      OP("sizes.heads", matrix, kView, x.view({x.size(0), 1, x.size(1)}).transpose(0, 1)),
      OP("sizes.drop_last", anything_dim, kView, x.narrow(i, 0, x.size(i) - 1)),
      OP("sizes.halves", anything_dim, kView,
         x.split_with_sizes({x.size(i) / 2, x.size(i) - x.size(i) / 2}, i)),
      OP("sizes.split", anything_dim, kView, x.split((x.size(i) + 1) / 2, i)),
      OP("sizes.last", anything_dim, kView, x.select(i, x.size(i) - 1)),
      OP("expand.sizes", matrix, kView, x.narrow(0, 0, 1).expand({x.size(0), x.size(1)})),
      OP("sizes.write_half", write_first, kInPlace, x.narrow(i, 0, x.size(i) / 2).mul_(c)),
      OP("sizes.write_last", write_first, kInPlace, x.select(i, x.size(i) - 1).add_(c)),

      // ---- copies ----
      OP("sizes.shifted", floating_dim, kPlain,
         x.narrow(i, 1, x.size(i) - 1) - x.narrow(i, 0, x.size(i) - 1)),
      OP("sizes.pad", floating_dim, kPlain, at::constant_pad_nd(x, {0, 32 - x.size(-1)}, c)),
      OP("sizes.roll", floating_dim, kPlain, x.roll(x.size(i) / 2, i)),
      OP("sizes.unbind", floating_dim, kPlain, at::stack(x.unbind(i))),
      OP("sizes.chunks", floating_dim, kPlain, at::cat(x.chunk(3, i), i)),
      OP("sizes.upsample", image, kPlain,
         at::upsample_nearest2d(x, at::IntArrayRef{x.size(2) * 2, x.size(3) + 1})),

      // ---- layers ----
      OP("sizes.layer_norm", floating_dim, kRounds, at::layer_norm(x, {x.size(-1)})),
      OP("sizes.pool", image, kRounds, at::avg_pool2d(x, {x.size(2), x.size(3)})),
      OP("sizes.bag", matrix, kRounds | kFirstOrderOnly,
         std::get<0>(at::embedding_bag(x, at::arange(x.size(0)), at::arange(0, x.size(0), 3)))),

      // ---- what other statements need: the same for sizes that are not known before ----
      OP("refit.sized", nullptr, kPlain,
         x.reshape({-1})
             .repeat({c10::multiply_integers(s) / std::max<int64_t>(x.numel(), 1) + 1})
             .slice(0, 0, c10::multiply_integers(s))
             .view(s)),
      OP("ramp.sized", nullptr, kNoGradient,
         at::arange(1, c10::multiply_integers(s) + 1, at::TensorOptions(t))
             .div(c10::multiply_integers(s))
             .view(s)),
      OP("indices.sized", nullptr, kNoGradient,
         at::arange(c10::multiply_integers(s)).mul(j).remainder(std::max<int64_t>(k, 1)).view(s)),
      OP("mask.sized", nullptr, kNoGradient,
         at::arange(c10::multiply_integers(s)).mul(j).remainder(3).gt(0).view(s)),
  };
}

}  // namespace tandem::fuzz
