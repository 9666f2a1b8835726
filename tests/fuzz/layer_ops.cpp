#include "fuzz/op.h"
#include "fuzz/patterns.h"

#define OP TANDEM_FUZZ_OP

namespace tandem::fuzz {

/// Products, layers, losses, and what draws.
std::vector<Op> layer_ops() {
  using namespace patterns;
  namespace F = torch::nn::functional;
  return {
      OP("mm", matrices, kRounds, x.mm(y)),
      OP("matmul", matrices, kRounds, x.matmul(y)),
      OP("matmul.batch", batches, kRounds, x.matmul(y)),
      OP("addmm", matrices, kRounds, at::addmm(z, x, y, c, d)),
      OP("bmm", batches, kRounds, x.bmm(y)),
      OP("baddbmm", batches, kRounds, at::baddbmm(z, x, y, c, d)),
      OP("dot", vectors, kRounds, x.dot(y)),
      OP("vdot", vectors, kRounds, x.vdot(y)),
      OP("mv", matrix_vector, kRounds, x.mv(y)),
      OP("addmv", matrix_vector, kRounds, at::addmv(z, x, y, c, d)),
      OP("outer", outer, kPlain, x.outer(y)),
      OP("addr", outer, kPlain, at::addr(z, x, y, c, d)),
      OP("kron", outer, kPlain, at::kron(x, y)),
      OP("linear", linear, kRounds, at::linear(x, y, z)),
      OP("linear.no_bias", linear, kRounds, at::linear(x, y)),
      OP("bilinear", linear, kRounds, at::bilinear(x, x, at::stack({y, y}, 2).expand({-1, -1, y.size(1)}), z)),
      OP("conv1d", convolution1d, kRounds, at::conv1d(x, y, z, i, j)),
      OP("conv2d", convolution2d, kRounds, at::conv2d(x, y, z, i, j)),
      OP("conv_transpose1d", convolution1d, kRounds, at::conv_transpose1d(x, y.transpose(0, 1), z, i)),
      OP("avg_pool2d", image, kRounds, at::avg_pool2d(x, 2)),
      OP("max_pool2d", image, kDiscontinuous, at::max_pool2d(x, 2)),
      OP("adaptive_avg_pool2d", image, kRounds, at::adaptive_avg_pool2d(x, {1, 2})),
      OP("pixel_unshuffle", image, kPlain, at::pixel_unshuffle(at::constant_pad_nd(x, {0, 0, 0, 1}), 2)),
      OP("upsample_nearest", image, kPlain, at::upsample_nearest2d(x, at::IntArrayRef{4, 4})),
      OP("upsample_bilinear", image, kRounds, at::upsample_bilinear2d(x, at::IntArrayRef{4, 4}, false)),
      OP("im2col", image, kPlain, at::im2col(x, {2, 2}, {1, 1}, {0, 0}, {1, 1})),
      OP("reflection_pad2d", image, kPlain, at::reflection_pad2d(x, {1, 1, 1, 0})),
      OP("layer_norm", last_dim, kRounds, at::layer_norm(x, s, y, z)),
      OP("layer_norm.plain", last_dim, kRounds, at::layer_norm(x, s)),
      OP("group_norm", channels, kRounds, at::group_norm(x, i, y, z)),
      OP("batch_norm", channels, kRounds, at::batch_norm(x, y, z, {}, {}, true, 0.1, 1e-3, false)),
      OP("batch_norm.state", channel_state, kRounds | kInPlace, at::batch_norm(x, {}, {}, y, z, true, 0.25, 1e-3, false)),
      OP("batch_norm.eval", channels, kRounds, at::batch_norm(x, y, z, y.detach(), z.detach().abs() + 0.5, false, 0.1, 1e-3, false)),
      OP("instance_norm", channels, kRounds, at::instance_norm(at::cat({x, x * 0.5}, 2), y, z, {}, {}, true, 0.1, 1e-2, false)),
      OP("rms_norm", last_dim, kRounds, at::rms_norm(x, s, y, 1e-3)),
      OP("normalize", last_dim, kRounds, F::normalize(x + 0.25, F::NormalizeFuncOptions().dim(-1))),
      OP("attention", attention, kRounds, at::scaled_dot_product_attention(x, y, z)),
      OP("cosine_similarity", last_dim, kRounds, at::cosine_similarity(x + 0.125, y + 0.25, -1)),
      OP("mse_loss", same_sizes, kRounds, at::mse_loss(x, y)),
      OP("mse_loss.none", same_sizes, kPlain, at::mse_loss(x, y, at::Reduction::None)),
      OP("l1_loss", same_sizes, kRounds, at::l1_loss(x, y)),
      OP("smooth_l1_loss", same_sizes, kRounds, at::smooth_l1_loss(x, y)),
      OP("huber_loss", same_sizes, kRounds, at::huber_loss(x, y, at::Reduction::Sum)),
      OP("soft_margin_loss", same_sizes, kRounds, at::soft_margin_loss(x, y)),
      OP("kl_div", same_sizes, kRounds, at::kl_div(x, y.sigmoid(), at::Reduction::Mean)),
      OP("binary_cross_entropy", same_sizes, kRounds, at::binary_cross_entropy(x.sigmoid(), y.sigmoid())),
      OP("bce_with_logits", same_sizes, kRounds, at::binary_cross_entropy_with_logits(x, y)),
      OP("cross_entropy", classes, kRounds, at::cross_entropy_loss(x, y)),
      OP("cross_entropy.smooth", classes, kRounds, at::cross_entropy_loss(x, y, {}, at::Reduction::Sum, -100, 0.1)),
      OP("nll_loss", classes, kRounds, at::nll_loss(x, y)),
      OP("multi_margin_loss", classes, kRounds | kFirstOrderOnly, at::multi_margin_loss(x, y)),
      OP("cdist", matrices, kRounds | kFirstOrderOnly, at::cdist(x, y.t() + 0.25)),
      OP("matrix_exp", square, kRounds | kOtherFormula, at::matrix_exp(x.clamp(-1, 1))),
      OP("inverse", square, kRounds, at::inverse(x.clamp(-1, 1) + 3 * at::eye(2, x.options().requires_grad(false)))),
      OP("det", square, kRounds, at::det(x.clamp(-1, 1) + 3 * at::eye(2, x.options().requires_grad(false)))),
      OP("cholesky", square, kRounds, at::linalg_cholesky(x.clamp(-1, 1).mm(x.clamp(-1, 1).t()) + 2 * at::eye(2, x.options().requires_grad(false)))),
      OP("fft", floating_dim, kRounds, at::fft_fft(x.to(at::kDouble), std::nullopt, i)),

      // ---- draws ----
      OP("rand", sizes_only, kRandom | kNoGradient, at::rand(s, g, at::TensorOptions(t))),
      OP("randn", sizes_only, kRandom | kNoGradient, at::randn(s, g, at::TensorOptions(t))),
      OP("randint", sizes_only, kRandom | kNoGradient, at::randint(5, s, g, at::TensorOptions(at::kLong))),
      OP("randperm", sizes_only, kRandom | kNoGradient, at::randperm(4, g, at::TensorOptions(at::kLong))),
      OP("rand_like", floating, kRandom | kNoGradient, at::rand_like(x)),
      OP("randn_like", floating, kRandom | kNoGradient, at::randn_like(x)),
      OP("randint_like", floating, kRandom | kNoGradient, at::randint_like(x, 4)),
      OP("bernoulli", floating, kRandom, x.sigmoid().bernoulli(g)),
      OP("bernoulli.p", floating, kRandom, at::bernoulli(x, 0.5, g)),
      OP("normal", floating, kRandom, at::normal(x, 0.5, g)),
      OP("dropout", floating, kRandom, at::dropout(x, 0.5, true)),
      OP("dropout.eval", floating, kPlain, at::dropout(x, 0.5, false)),
      OP("feature_dropout", image, kRandom, at::feature_dropout(x, 0.5, true)),
      OP("alpha_dropout", floating, kRandom, at::alpha_dropout(x, 0.5, true)),
      OP("rrelu", floating, kRandom, at::rrelu(x, 0.1, 0.3, true, g)),
      OP("multinomial", last_dim, kRandom | kDiscontinuous | kNoGradient, at::multinomial(x.detach().sigmoid(), 2, true, g)),
      OP("poisson", floating, kRandom | kDiscontinuous, at::poisson(x.detach().sigmoid(), g)),
      OP("gumbel", floating, kRandom | kRounds, F::gumbel_softmax(x.flatten(), F::GumbelSoftmaxFuncOptions().dim(-1))),
  };
}

}  // namespace tandem::fuzz
