#pragma once

#include "ops/rules/rule_blocks.h"

/// Our own metadata rules, by family. Every one is judged by eager: tests/unit/ops compares.
namespace tandem::ops::rules {

enum class Like { Contiguous, Suggested, Preserved };
Results like_argument(const MetaCall& call, int argument, Like layout);

/// Sizes and dtype of one argument, in a layout of its own.
template <int argument, Like layout>
Results like(const MetaCall& call) {
  return like_argument(call, argument, layout);
}

// pointwise.cpp: TensorIterator decides sizes and strides; operands in the kernel's order.
Results unary(const MetaCall& call);  // dtype of self, any dtype but bool
Results unary_any(const MetaCall& call);
Results unary_floating(const MetaCall& call);  // dtype of self, floating only
Results unary_bool(const MetaCall& call);
Results unary_to_float(const MetaCall& call);  // integers become the default dtype
Results absolute(const MetaCall& call);        // complex becomes real
Results angle(const MetaCall& call);
Results binary(const MetaCall& call);
Results binary_scalar(const MetaCall& call);
Results binary_reversed(const MetaCall& call);
Results binary_scalar_first(const MetaCall& call);
Results binary_bool(const MetaCall& call);
Results to_complex(const MetaCall& call);
Results where(const MetaCall& call);
Results prelu(const MetaCall& call);
Results prelu_backward(const MetaCall& call);
Results frexp(const MetaCall& call);
Results log_sigmoid_forward(const MetaCall& call);

// norm.cpp
Results batch_norm(const MetaCall& call);
Results batch_norm_functional(const MetaCall& call);
Results batch_norm_no_stats(const MetaCall& call);
Results batch_norm_no_training(const MetaCall& call);
Results batch_norm_with_update(const MetaCall& call);
Results batch_norm_with_update_functional(const MetaCall& call);
Results batch_norm_no_update(const MetaCall& call);
Results batch_norm_backward(const MetaCall& call);
Results layer_norm(const MetaCall& call);
Results layer_norm_backward(const MetaCall& call);
Results group_norm(const MetaCall& call);
Results group_norm_backward(const MetaCall& call);
Results weight_norm(const MetaCall& call);
Results weight_norm_backward(const MetaCall& call);

// conv.cpp
Results convolution(const MetaCall& call);
Results convolution_backward(const MetaCall& call);

// attention.cpp
Results flash_attention_for_cpu(const MetaCall& call);
Results flash_attention_for_cpu_backward(const MetaCall& call);
Results safe_softmax(const MetaCall& call);

// loss.cpp
Results binary_cross_entropy(const MetaCall& call);
Results binary_cross_entropy_with_logits(const MetaCall& call);
Results huber_loss(const MetaCall& call);
Results loss_backward(const MetaCall& call);  // of mse, huber, smooth_l1
Results nll_loss2d_forward(const MetaCall& call);
Results multi_margin_loss(const MetaCall& call);
Results multilabel_margin_loss_forward(const MetaCall& call);

// index.cpp
Results index(const MetaCall& call);
Results index_add(const MetaCall& call);
Results index_put(const MetaCall& call);
Results index_select(const MetaCall& call);
Results take(const MetaCall& call);
Results embedding(const MetaCall& call);
Results embedding_dense_backward(const MetaCall& call);
Results embedding_bag(const MetaCall& call);
Results embedding_bag_forward_only(const MetaCall& call);
Results embedding_bag_backward(const MetaCall& call);
Results embedding_bag_weights_backward(const MetaCall& call);
Results bucketize(const MetaCall& call);
Results searchsorted(const MetaCall& call);
Results segment_reduce(const MetaCall& call);
Results repeat_interleave(const MetaCall& call);

// pool.cpp: pools, pads, folds, grids and shuffles
Results adaptive_avg_pool2d(const MetaCall& call);
Results adaptive_avg_pool3d(const MetaCall& call);
Results max_pool3d_with_indices(const MetaCall& call);
Results max_pool3d_backward(const MetaCall& call);
Results max_unpool2d(const MetaCall& call);
Results max_unpool3d(const MetaCall& call);
Results pad2d(const MetaCall& call);
Results pad3d(const MetaCall& call);
Results pixel_shuffle(const MetaCall& call);
Results pixel_unshuffle(const MetaCall& call);
Results grid_sampler(const MetaCall& call);
Results grid_sampler_backward(const MetaCall& call);
Results im2col(const MetaCall& call);
Results col2im(const MetaCall& call);
Results unfold_backward(const MetaCall& call);

// reduce.cpp
Results reduce_all(const MetaCall& call);
Results reduce_all_to_long(const MetaCall& call);
Results isin_of_a_number(const MetaCall& call);
Results matrix_trace(const MetaCall& call);
Results dot(const MetaCall& call);
Results variance(const MetaCall& call);
Results variance_and_mean(const MetaCall& call);
Results logsumexp(const MetaCall& call);
Results nansum(const MetaCall& call);
Results count_nonzero(const MetaCall& call);
Results values_and_indices(const MetaCall& call);
Results cumulative_values_and_indices(const MetaCall& call);

// linalg.cpp
Results column_major_like_first(const MetaCall& call);
Results solve_triangular(const MetaCall& call);
Results cdist_forward(const MetaCall& call);
Results pdist_forward(const MetaCall& call);
Results addbmm(const MetaCall& call);
Results addr(const MetaCall& call);
Results eig(const MetaCall& call);
Results geqrf(const MetaCall& call);
Results matrix_exp(const MetaCall& call);

// rnn.cpp
Results only_the_kernel_knows(const MetaCall& call);
Results mkldnn_rnn_layer_backward(const MetaCall& call);

// other.cpp: rearrangements, random numbers, optimizers, factories
Results roll(const MetaCall& call);
Results native_dropout(const MetaCall& call);
Results multinomial(const MetaCall& call);
Results randperm(const MetaCall& call);
Results written_lists(const MetaCall& call);
Results triangle_indices(const MetaCall& call);
Results nothing(const MetaCall& call);

}  // namespace tandem::ops::rules
