#pragma once

#include "tandem/decomposition.h"

#include <vector>

/// One function per row of the table in table.cpp. Each follows the order of operations of eager's
/// CPU kernel and computes in the dtype that the kernel computes in; casting the results back is
/// the caller's.
namespace tandem::ops::decompositions {

using Results = std::vector<Expr>;

// ---- activations ----
Results elu(const OpCall& call);
Results elu_backward(const OpCall& call);
Results gelu(const OpCall& call);
Results gelu_backward(const OpCall& call);
Results glu(const OpCall& call);
Results glu_backward(const OpCall& call);
Results hardshrink(const OpCall& call);
Results hardshrink_backward(const OpCall& call);
Results hardsigmoid(const OpCall& call);
Results hardsigmoid_backward(const OpCall& call);
Results hardswish(const OpCall& call);
Results hardswish_backward(const OpCall& call);
Results hardtanh(const OpCall& call);
Results hardtanh_backward(const OpCall& call);
Results leaky_relu(const OpCall& call);
Results leaky_relu_backward(const OpCall& call);
Results log_sigmoid(const OpCall& call);
Results log_sigmoid_backward(const OpCall& call);
Results mish(const OpCall& call);
Results mish_backward(const OpCall& call);
Results prelu(const OpCall& call);
Results prelu_backward(const OpCall& call);
Results relu(const OpCall& call);
Results sigmoid_backward(const OpCall& call);
Results silu(const OpCall& call);
Results silu_backward(const OpCall& call);
Results softplus(const OpCall& call);
Results softplus_backward(const OpCall& call);
Results softshrink(const OpCall& call);
Results softshrink_backward(const OpCall& call);
Results tanh_backward(const OpCall& call);
Results threshold(const OpCall& call);
Results threshold_backward(const OpCall& call);

// ---- normalisation, statistics ----
Results batch_norm_backward(const OpCall& call);
Results batch_norm_evaluated(const OpCall& call);
Results batch_norm_functional(const OpCall& call);
Results batch_norm_no_stats(const OpCall& call);
Results batch_norm_update_functional(const OpCall& call);
Results group_norm(const OpCall& call);
Results group_norm_backward(const OpCall& call);
Results layer_norm(const OpCall& call);
Results layer_norm_backward(const OpCall& call);
Results mean_of_all(const OpCall& call);
Results mean_of_dims(const OpCall& call);
Results standard_deviation(const OpCall& call);
Results variance(const OpCall& call);
Results variance_and_mean(const OpCall& call);

// ---- softmax ----
Results log_softmax(const OpCall& call);
Results log_softmax_backward(const OpCall& call);
Results logsumexp(const OpCall& call);
Results safe_softmax(const OpCall& call);
Results softmax(const OpCall& call);
Results softmax_backward(const OpCall& call);

// ---- losses ----
Results binary_cross_entropy_backward(const OpCall& call);
Results binary_cross_entropy_with_logits(const OpCall& call);
Results huber_loss(const OpCall& call);
Results huber_loss_backward(const OpCall& call);
Results mse_loss(const OpCall& call);
Results mse_loss_backward(const OpCall& call);
Results nll_loss(const OpCall& call);
Results nll_loss_backward(const OpCall& call);
Results smooth_l1_loss(const OpCall& call);
Results smooth_l1_loss_backward(const OpCall& call);

// ---- dropout, products with an added term, pointwise ops of three operands ----
Results addcdiv(const OpCall& call);
Results addcmul(const OpCall& call);
Results addmm(const OpCall& call);
Results baddbmm(const OpCall& call);
Results dropout(const OpCall& call);
Results dropout_backward(const OpCall& call);

}  // namespace tandem::ops::decompositions
