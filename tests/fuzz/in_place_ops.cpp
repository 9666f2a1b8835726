#include "fuzz/op.h"
#include "fuzz/patterns.h"

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {

/// Writes: to a variable, through a view made on the spot, past autograd.
std::vector<Op> in_place_ops() {
  using namespace patterns;
  return {
      OP("add_.Scalar", write_numeric, kInPlace, x.add_(j + 1)),
      OP("add_", write_pair, kInPlace, x.add_(y)),
      OP("add_.alpha", write_pair, kInPlace, x.add_(y, c)),
      OP("sub_", write_pair, kInPlace, x.sub_(y)),
      OP("mul_", write_pair, kInPlace, x.mul_(y)),
      OP("mul_.Scalar", write, kInPlace, x.mul_(c)),
      OP("div_", write_pair, kInPlace, x.div_(y.abs() + 0.5)),
      OP("div_.Scalar", write, kInPlace, x.div_(2)),
      OP("addcmul_", write_triple, kInPlace, x.addcmul_(y, z, c)),
      OP("addcdiv_", write_triple, kInPlace, x.addcdiv_(y, z.abs() + 0.5, c)),
      OP("lerp_", write_dim, kInPlace, x.lerp_(y, 0.25)),
      OP("neg_", write, kInPlace, x.neg_()),
      OP("abs_", write, kInPlace, x.abs_()),
      OP("square_", write, kInPlace, x.square_()),
      OP("relu_", write, kInPlace, x.relu_()),
      OP("clamp_", write, kInPlace, x.clamp_(-0.75, 1.25)),
      OP("clamp_min_", write, kInPlace, x.clamp_min_(c)),
      OP("hardtanh_", write, kInPlace, at::hardtanh_(x)),
      OP("leaky_relu_", write, kInPlace, at::leaky_relu_(x, 0.1)),
      OP("threshold_", write, kInPlace, at::threshold_(x, 0.1, c)),
      OP("sin_", write, kInPlace | kRounds, x.sin_()),
      OP("cos_", write, kInPlace | kRounds, x.cos_()),
      OP("tanh_", write, kInPlace | kRounds, x.tanh_()),
      OP("sigmoid_", write, kInPlace | kRounds, x.sigmoid_()),
      OP("exp_", write, kInPlace | kRounds, x.clamp_max_(1).exp_()),
      OP("elu_", write, kInPlace | kRounds, at::elu_(x)),
      OP("silu_", write, kInPlace | kRounds, at::silu_(x)),
      OP("pow_", write, kInPlace, x.pow_(2)),
      OP("atan_", write, kInPlace | kRounds, x.atan_()),
      OP("floor_", write, kInPlace | kDiscontinuous, x.floor_()),
      OP("round_", write, kInPlace | kDiscontinuous, x.round_()),
      OP("sign_", write, kInPlace | kDiscontinuous, x.sign_()),
      OP("zero_", write_numeric, kInPlace, x.zero_()),
      OP("fill_", write, kInPlace, x.fill_(c)),
      OP("fill_.Tensor", write_pair, kInPlace | kNoOverlap | kEagerBits, x.fill_(y.sum())),
      OP("copy_", write_pair, kInPlace, x.copy_(y)),
      OP("masked_fill_", write_masked, kInPlace | kOtherFormula, x.masked_fill_(y, c)),
      OP("masked_scatter_", write_masked, kInPlace | kNoOverlap, x.masked_scatter_(y, z)),
      OP("index_add_", write_rows, kInPlace | kNoOverlap, x.index_add_(0, y, z)),
      OP("index_copy_", write_rows, kInPlace | kNoOverlap, x.index_copy_(0, y, z)),
      OP("index_fill_", write_rows, kInPlace, x.index_fill_(0, y, c)),
      OP("index_put_", write_rows, kInPlace | kNoOverlap, x.index_put_({y}, z)),
      OP("scatter_add_", write_like, kInPlace | kRounds | kNoOverlap, x.scatter_add_(i, y, z)),
      OP("scatter_.value", write_like, kInPlace, x.scatter_(i, y, c)),
      OP("cumsum_", write_dim, kInPlace | kRounds, x.cumsum_(i)),
      OP("tril_", write_product, kInPlace, x.tril_()),
      OP("fill_diagonal_", write_product, kInPlace, x.fill_diagonal_(c)),
      OP("addmm_", write_product, kInPlace | kRounds | kNoOverlap, x.addmm_(y, z, c, d)),
      OP("baddbmm_", write_product, kInPlace | kRounds | kNoOverlap,
         x.unsqueeze(0).baddbmm_(y.unsqueeze(0), z.unsqueeze(0))),
      OP("bernoulli_", write, kInPlace | kRandom, x.bernoulli_(0.5, g)),
      OP("uniform_", write, kInPlace | kRandom, x.uniform_(-1, 1, g)),
      OP("normal_", write, kInPlace | kRandom, x.normal_(0, 1, g)),
      OP("exponential_", write, kInPlace | kRandom, x.exponential_(1, g)),
      OP("random_", write_numeric, kInPlace | kRandom, x.random_(0, 5, g)),
      OP("dropout_", write, kInPlace | kRandom, at::dropout_(x, 0.5, true)),

      // ---- through a view ----
      OP("select.add_", write_first, kInPlace, x.select(i, k).add_(c)),
      OP("select.copy_", write_first, kInPlace | kNoOverlap, x.select(i, k).copy_(y.select(i, 0))),
      OP("narrow.mul_", write_first, kInPlace, x.narrow(i, k, 1).mul_(c)),
      OP("narrow.zero_", write_first, kInPlace, x.narrow(i, k, 1).zero_()),
      OP("diagonal.mul_", write_product, kInPlace, x.diagonal().mul_(c)),
      OP("t.add_", write_product, kInPlace | kNoOverlap | kEagerBits,
         x.t().add_(z.mm(y.t().mm(x.detach())).sum())),
      OP("unsqueeze.mul_", write, kInPlace, x.unsqueeze(0).mul_(c)),
      OP("flatten.add_", write, kInPlace, x.flatten().add_(c)),
      OP("index.write", write_first, kInPlace, x.index_put_({at::indexing::Ellipsis, 0}, c)),

      // ---- past autograd ----
      OP("detach.mul_", write, kInPlace, x.detach().mul_(c)),
      OP("data.add_", write, kInPlace | kNoResult, x.data().add_(c)),
      OP("foreach_mul_", write_list, kInPlace, (at::_foreach_mul_(xs, c), xs)),
      OP("foreach_add_", write_list, kInPlace, (at::_foreach_add_(xs, 1), xs)),

      // ---- out= and swapping ----
      OP("sin_out", write, kInPlace | kRounds, at::sin_out(x, x.clone())),
      OP("add_out", write_dim, kInPlace, at::add_out(x, y, y)),

      // ---- sizes and strides ----
      OP("t_", reshapable, kInPlace | kToggle, x.t_()),
      OP("unsqueeze_", reshapable, kInPlace | kToggle, x.unsqueeze_(0)),
      OP("transpose_", reshapable, kInPlace | kToggle, x.transpose_(0, 1)),
  };
}

}  // namespace tandem::fuzz
