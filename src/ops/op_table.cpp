#include "ops/op_table.h"

#include "ops/op_row.h"
#include "ops/rules/rules.h"

// The table of ops: one row per overload about which libtorch's schema and tags are silent or
// wrong. docs/how-to/add-an-op.md says how to add one, docs/reference/ops.md what the columns mean.

namespace tandem::ops {
namespace {

using enum Fact;
using rules::Like;

constexpr OpRow pointwise(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op,
          .rule = rule,
          .cost = CostClass::Pointwise,
          .fusion = FusionKind::Pointwise,
          .facts = facts};
}
/// Elementwise work that is not one kernel over one output: it draws, or reduces at the end.
constexpr OpRow elementwise(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op, .rule = rule, .cost = CostClass::Pointwise, .facts = facts};
}
constexpr OpRow reduction(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op,
          .rule = rule,
          .cost = CostClass::Reduction,
          .fusion = FusionKind::Reduction,
          .facts = facts};
}
/// Sorts, scans, normalisations with hidden state: as much work as a reduction, but not of its
/// form.
constexpr OpRow pass_over(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op, .rule = rule, .cost = CostClass::Reduction, .facts = facts};
}
constexpr OpRow copy(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op, .rule = rule, .cost = CostClass::Copy, .facts = facts};
}
constexpr OpRow product(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op, .rule = rule, .cost = CostClass::MatrixProduct, .facts = facts};
}
constexpr OpRow convolution(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op, .rule = rule, .cost = CostClass::Convolution, .facts = facts};
}
constexpr OpRow attention(std::string_view op, MetadataRule rule = nullptr) {
  return {.op = op, .rule = rule, .cost = CostClass::Attention, .draw_switch = "dropout_p"};
}
constexpr OpRow attention_backward(std::string_view op, MetadataRule rule = nullptr) {
  return {.op = op, .rule = rule, .cost = CostClass::Attention};
}
constexpr OpRow other(std::string_view op, MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op, .rule = rule, .facts = facts};
}
constexpr OpRow draws_unless(std::string_view draw_switch, std::string_view op,
                             MetadataRule rule = nullptr, Fact facts = None) {
  return {.op = op,
          .rule = rule,
          .cost = CostClass::Pointwise,
          .fusion = FusionKind::None,
          .facts = facts,
          .draw_switch = draw_switch};
}

constexpr OpRow kRows[] = {
    // ---- aliases and writes that the schema hides ----
    other("_unsafe_view", nullptr, HiddenAlias),
    other("unsafe_split.Tensor", nullptr, HiddenAlias),
    other("unsafe_split_with_sizes", nullptr, HiddenAlias),
    other("unsafe_chunk", nullptr, HiddenAlias),
    other("mkldnn_rnn_layer_backward", rules::mkldnn_rnn_layer_backward, HiddenWrite),
    other("batch_norm_update_stats", nullptr, HiddenWrite),
    other("batch_norm_gather_stats", nullptr, HiddenWrite),
    other("batch_norm_gather_stats_with_counts", nullptr, HiddenWrite),
    other("cudnn_batch_norm", nullptr, HiddenWrite),
    other("miopen_batch_norm", nullptr, HiddenWrite),
    other("_cudnn_rnn", nullptr, HiddenWrite),

    // ---- effects without a result ----
    other("_assert_async", rules::nothing, Effect),
    other("_assert_async.msg", rules::nothing, Effect),
    other("_assert_scalar", rules::nothing, Effect),
    other("_assert_tensor_metadata", rules::nothing, Effect),
    other("_functional_assert_async.msg", nullptr, Effect),
    other("_functional_assert_scalar", nullptr, Effect),
    other("_linalg_check_errors", rules::nothing, Effect),
    other("_make_dep_token", nullptr, Effect),
    other("_print", rules::nothing, Effect),
    other("record_stream", rules::nothing, Effect),
    other("sym_constrain_range", rules::nothing, Effect),
    other("sym_constrain_range_for_size", rules::nothing, Effect),
    other("_functional_sym_constrain_range", nullptr, Effect),
    other("_functional_sym_constrain_range_for_size", nullptr, Effect),

    // ---- kernels that autocast reaches into ----
    other("_trilinear", nullptr, CastsInside),
    other("affine_grid_generator", nullptr, CastsInside),

    // ---- values computed from data ----
    other("_local_scalar_dense", nullptr, ReadsData | NeverOnZeros),
    other("_pack_padded_sequence", nullptr, ReadsData | NeverOnZeros),
    other("allclose", nullptr, ReadsData | NeverOnZeros),
    other("equal", nullptr, ReadsData | NeverOnZeros | NotPointwise),
    other("is_nonzero", nullptr, ReadsData | NeverOnZeros),
    other("is_pinned", nullptr, ReadsData | NeverOnZeros),
    other("is_set_to", nullptr, ReadsData | NeverOnZeros),
    other("item", nullptr, ReadsData | NeverOnZeros),
    other("_use_cudnn_ctc_loss", nullptr, ReadsData | NeverOnZeros),
    other("_use_cudnn_ctc_loss.Tensor", nullptr, ReadsData | NeverOnZeros),

    // ---- sizes that depend on data; the tag says so unless noted here ----
    other("_ctc_loss", nullptr, StaticSize),
    other("_ctc_loss.Tensor", nullptr, NeverOnZeros),
    other("_unique", nullptr, NeverOnZeros),
    other("_unique2", nullptr, NeverOnZeros),
    other("bincount", nullptr, NeverOnZeros),
    other("index.Tensor", rules::index, StaticSize | NeverOnZeros | ComputeTwice),
    other("_unsafe_index.Tensor", rules::index, StaticSize | NeverOnZeros | ComputeTwice),
    other("linalg_lstsq", nullptr, NeverOnZeros),
    other("masked_select", nullptr, NeverOnZeros),
    other("nonzero", nullptr, NeverOnZeros),
    other("repeat_interleave.Tensor", rules::repeat_interleave, StaticSize | NeverOnZeros),
    other("unique_consecutive", nullptr, NeverOnZeros),
    other("unique_dim", nullptr, NeverOnZeros),
    other("unique_dim_consecutive", nullptr, NeverOnZeros),

    // ---- pointwise ----
    pointwise("_add_relu.Scalar", rules::binary_scalar),
    pointwise("_add_relu.Tensor", rules::binary),
    pointwise("_conj_physical", rules::like<0, Like::Preserved>),
    pointwise("__lshift__.Scalar", rules::binary_scalar),
    pointwise("__lshift__.Tensor", rules::binary),
    pointwise("__rshift__.Scalar", rules::binary_scalar),
    pointwise("__rshift__.Tensor", rules::binary),
    pointwise("_prelu_kernel", rules::prelu),
    pointwise("_prelu_kernel_backward", rules::prelu_backward),
    pointwise("abs", rules::absolute),
    pointwise("abs.out", rules::absolute, RegisterMeta),
    pointwise("angle", rules::angle),
    pointwise("complex", rules::to_complex),
    pointwise("conj_physical.out", rules::unary_any, RegisterMeta),
    pointwise("elu_backward"),
    pointwise("floor_divide", rules::binary, NeverOnZeros),
    pointwise("floor_divide.Scalar", rules::binary_scalar, NeverOnZeros),
    pointwise("floor_divide.out", rules::binary, RegisterMeta),
    pointwise("frexp.Tensor", rules::frexp),
    pointwise("glu"),
    pointwise("glu_backward", rules::like<1, Like::Contiguous>),
    pointwise("hardsigmoid_backward"),
    pointwise("hardswish", rules::unary_floating),
    pointwise("hardswish_backward", rules::binary),
    pointwise("hardtanh", rules::unary),
    pointwise("hardtanh_backward", rules::binary),
    pointwise("isinf", rules::unary_bool),
    pointwise("isnan", rules::unary_bool),
    pointwise("leaky_relu_backward"),
    pointwise("log_sigmoid_backward", rules::like<0, Like::Preserved>),
    pointwise("log_sigmoid_forward", rules::log_sigmoid_forward, RegisterMeta),
    pointwise("logical_and", rules::binary_bool),
    pointwise("logical_and.out", rules::binary_bool, RegisterMeta),
    pointwise("logical_not", rules::unary_bool),
    pointwise("logical_not.out", rules::unary_bool, RegisterMeta),
    pointwise("logical_or", rules::binary_bool),
    pointwise("logical_or.out", rules::binary_bool, RegisterMeta),
    pointwise("logical_xor", rules::binary_bool),
    pointwise("logical_xor.out", rules::binary_bool, RegisterMeta),
    pointwise("logit", rules::unary_to_float),
    pointwise("masked_fill.Tensor"),
    pointwise("mish_backward", rules::binary),
    pointwise("mvlgamma.out", rules::unary_to_float, RegisterMeta),
    pointwise("nan_to_num", rules::unary_any),
    pointwise("nan_to_num.out", rules::unary_any, RegisterMeta),
    pointwise("native_dropout_backward", rules::binary),
    pointwise("polar", rules::to_complex),
    pointwise("relu", rules::unary),
    pointwise("remainder.Scalar_Tensor", rules::binary_scalar_first, NeverOnZeros),
    pointwise("rsub.Tensor", rules::binary_reversed),
    pointwise("silu_backward", rules::binary),
    pointwise("softplus_backward"),
    pointwise("where.self", rules::where, RegisterMeta),
    pointwise("where.self_out", rules::where, RegisterMeta),

    // ---- copies and rearrangements ----
    other("arange", nullptr, ComputeTwice),
    other("arange.start", nullptr, ComputeTwice),
    other("arange.start_step", nullptr, ComputeTwice),
    other("eye", nullptr, ComputeTwice),
    other("lift_fresh_copy", nullptr, ComputeTwice),
    other("new_full", nullptr, ComputeTwice),
    other("new_ones", nullptr, ComputeTwice),
    other("new_zeros", nullptr, ComputeTwice),
    other("scalar_tensor", nullptr, ComputeTwice),
    other("tril", nullptr, ComputeTwice),
    other("triu", nullptr, ComputeTwice),
    pointwise("_to_copy"),
    pointwise("clone"),
    pointwise("copy"),
    pointwise("full"),
    pointwise("full_like"),
    pointwise("ones"),
    pointwise("ones_like"),
    pointwise("zeros"),
    pointwise("zeros_like"),
    copy("as_strided_scatter"),
    copy("cat"),
    copy("channel_shuffle", rules::like<0, Like::Suggested>),
    copy("col2im", rules::col2im),
    copy("constant_pad_nd"),
    copy("diagonal_scatter"),
    copy("embedding", rules::embedding),
    copy("flip", rules::like<0, Like::Preserved>, RegisterMeta),
    copy("gather", nullptr, ComputeTwice),
    copy("im2col", rules::im2col),
    copy("index_put"),
    copy("index_select", rules::index_select, RegisterMeta),
    copy("masked_scatter"),
    copy("native_channel_shuffle", rules::like<0, Like::Suggested>),
    copy("pixel_shuffle", rules::pixel_shuffle),
    copy("pixel_unshuffle", rules::pixel_unshuffle),
    copy("reflection_pad2d", rules::pad2d),
    copy("reflection_pad2d_backward", rules::like<1, Like::Suggested>),
    copy("reflection_pad3d", rules::pad3d),
    copy("reflection_pad3d_backward", rules::like<1, Like::Suggested>),
    copy("repeat"),
    copy("replication_pad2d", rules::pad2d),
    copy("replication_pad2d_backward", rules::like<1, Like::Suggested>),
    copy("replication_pad3d", rules::pad3d),
    copy("replication_pad3d_backward", rules::like<1, Like::Suggested>),
    copy("roll", rules::roll),
    copy("scatter.src"),
    copy("scatter.value"),
    copy("scatter_add"),
    copy("select_backward"),
    copy("select_scatter"),
    copy("slice_backward"),
    copy("slice_scatter"),
    copy("stack"),
    copy("take", rules::take),
    copy("unfold_backward", rules::unfold_backward),

    // ---- indices ----
    other("_embedding_bag", rules::embedding_bag),
    other("_embedding_bag_backward", rules::embedding_bag_backward),
    other("_embedding_bag_dense_backward", rules::embedding_bag_backward),
    other("_embedding_bag_forward_only", rules::embedding_bag_forward_only),
    other("_embedding_bag_per_sample_weights_backward", rules::embedding_bag_weights_backward),
    other("_segment_reduce_backward", rules::like<2, Like::Contiguous>, NeverOnZeros),
    other("_unsafe_masked_index_put_accumulate", rules::like<0, Like::Preserved>),
    other("bucketize.Tensor", rules::bucketize),
    other("embedding_dense_backward", rules::embedding_dense_backward),
    other("searchsorted.Tensor", rules::searchsorted),
    other("segment_reduce", rules::segment_reduce, NeverOnZeros),

    // ---- reductions ----
    reduction("_log_softmax"),
    reduction("_log_softmax_backward_data"),
    reduction("_safe_softmax", rules::safe_softmax),
    reduction("_softmax"),
    reduction("_softmax_backward_data"),
    reduction("all", nullptr, ComputeTwice),
    reduction("all.dim", nullptr, ComputeTwice),
    reduction("all.dims", nullptr, ComputeTwice),
    reduction("amax", nullptr, ComputeTwice),
    reduction("amin", nullptr, ComputeTwice),
    reduction("any", nullptr, ComputeTwice),
    reduction("any.dim", nullptr, ComputeTwice),
    reduction("any.dims", nullptr, ComputeTwice),
    reduction("argmax", nullptr, ComputeTwice),
    reduction("argmin", nullptr, ComputeTwice),
    reduction("count_nonzero", rules::count_nonzero),
    reduction("count_nonzero.dim_IntList", rules::count_nonzero),
    reduction("linalg_vector_norm"),
    reduction("logsumexp", rules::logsumexp),
    reduction("max", rules::reduce_all, RegisterMeta | ComputeTwice),
    reduction("max.dim", nullptr, ComputeTwice),
    reduction("mean", nullptr, ComputeTwice),
    reduction("mean.dim", nullptr, ComputeTwice),
    reduction("min", rules::reduce_all, ComputeTwice),
    reduction("min.dim", nullptr, ComputeTwice),
    reduction("nansum", rules::nansum),
    reduction("prod", rules::reduce_all_to_long),
    reduction("prod.dim_int"),
    reduction("std.correction", rules::variance, ComputeTwice),
    reduction("std_mean.correction", rules::variance_and_mean, ComputeTwice),
    reduction("sum", nullptr, ComputeTwice),
    reduction("sum.dim_IntList", nullptr, ComputeTwice),
    reduction("var.correction", rules::variance, ComputeTwice),
    reduction("var_mean.correction", rules::variance_and_mean, ComputeTwice),
    pass_over("_cummax_helper", rules::nothing, RegisterMeta),
    pass_over("_cummin_helper", rules::nothing, RegisterMeta),
    pass_over("_logcumsumexp", rules::like<0, Like::Contiguous>, RegisterMeta),
    pass_over("cummax", rules::cumulative_values_and_indices),
    pass_over("cummin", rules::cumulative_values_and_indices),
    pass_over("cumprod"),
    pass_over("cumsum"),
    pass_over("kthvalue", rules::values_and_indices),
    pass_over("logcumsumexp", rules::like<0, Like::Contiguous>),
    pass_over("median", rules::reduce_all),
    pass_over("median.dim", rules::values_and_indices),
    pass_over("mode", rules::values_and_indices),
    pass_over("nanmedian", rules::reduce_all),
    pass_over("nanmedian.dim", rules::values_and_indices),
    pass_over("sort"),
    pass_over("sort.stable"),
    pass_over("topk"),
    pass_over("trace", rules::matrix_trace),

    // ---- normalisation ----
    pass_over("_batch_norm_no_update", rules::batch_norm_no_update),
    pass_over("_batch_norm_with_update", rules::batch_norm_with_update, RegisterMeta),
    pass_over("_batch_norm_with_update_functional", rules::batch_norm_with_update_functional),
    pass_over("_native_batch_norm_legit", rules::batch_norm, RegisterMeta),
    pass_over("_native_batch_norm_legit.no_stats", rules::batch_norm_no_stats, RegisterMeta),
    pass_over("_native_batch_norm_legit_functional", rules::batch_norm_functional),
    pass_over("_native_batch_norm_legit_no_training", rules::batch_norm_no_training),
    pass_over("_weight_norm_interface", rules::weight_norm),
    pass_over("_weight_norm_interface_backward", rules::weight_norm_backward),
    pass_over("batch_norm_backward", rules::batch_norm_backward),
    pass_over("native_batch_norm", rules::batch_norm, HiddenWrite),
    pass_over("native_batch_norm_backward", rules::batch_norm_backward),
    pass_over("native_group_norm", rules::group_norm),
    pass_over("native_group_norm_backward", rules::group_norm_backward),
    reduction("native_layer_norm", rules::layer_norm),
    pass_over("native_layer_norm_backward", rules::layer_norm_backward),

    // ---- matrix products, convolution, attention ----
    product("_cdist_forward", rules::cdist_forward),
    product("_int_mm"),
    product("_scaled_mm"),
    product("addbmm", rules::addbmm),
    product("addmm"),
    product("addmv"),
    product("addr"),
    product("baddbmm"),
    product("bmm"),
    product("linear"),
    product("linear_backward"),
    product("matmul"),
    product("matmul_backward"),
    product("mm"),
    product("mv"),
    reduction("dot", rules::dot),
    reduction("vdot", rules::dot),
    convolution("_slow_conv2d_forward"),
    convolution("convolution", rules::convolution),
    convolution("convolution_backward", rules::convolution_backward),
    convolution("convolution_overrideable"),
    convolution("cudnn_convolution"),
    convolution("cudnn_convolution_transpose"),
    convolution("mkldnn_convolution"),
    attention("_cudnn_attention_forward"),
    attention("_efficient_attention_forward"),
    attention("_flash_attention_forward"),
    attention("_scaled_dot_product_attention_math"),
    attention("_scaled_dot_product_cudnn_attention"),
    attention("_scaled_dot_product_efficient_attention"),
    attention("_scaled_dot_product_flash_attention"),
    attention("_scaled_dot_product_flash_attention_for_cpu", rules::flash_attention_for_cpu),
    attention("scaled_dot_product_attention"),
    attention_backward("_cudnn_attention_backward"),
    attention_backward("_efficient_attention_backward"),
    attention_backward("_flash_attention_backward"),
    attention_backward("_scaled_dot_product_cudnn_attention_backward"),
    attention_backward("_scaled_dot_product_efficient_attention_backward"),
    attention_backward("_scaled_dot_product_flash_attention_backward"),
    attention_backward("_scaled_dot_product_flash_attention_for_cpu_backward",
                       rules::flash_attention_for_cpu_backward),

    // ---- losses ----
    elementwise("binary_cross_entropy", rules::binary_cross_entropy),
    elementwise("binary_cross_entropy_backward", rules::like<1, Like::Preserved>),
    elementwise("binary_cross_entropy_with_logits", rules::binary_cross_entropy_with_logits),
    elementwise("huber_loss", rules::huber_loss),
    elementwise("huber_loss_backward", rules::loss_backward),
    elementwise("mse_loss_backward", rules::loss_backward),
    elementwise("multi_margin_loss", rules::multi_margin_loss),
    elementwise("multi_margin_loss_backward", rules::like<1, Like::Contiguous>),
    elementwise("multilabel_margin_loss_backward", rules::like<1, Like::Contiguous>),
    elementwise("multilabel_margin_loss_forward", rules::multilabel_margin_loss_forward),
    elementwise("nll_loss2d_backward", rules::like<1, Like::Contiguous>),
    elementwise("nll_loss2d_forward", rules::nll_loss2d_forward),
    elementwise("smooth_l1_loss_backward", rules::loss_backward),
    other("_ctc_loss_backward", rules::like<1, Like::Contiguous>),
    other("_ctc_loss_backward.Tensor", rules::like<1, Like::Contiguous>),

    // ---- pools and grids ----
    pass_over("_adaptive_avg_pool2d", rules::adaptive_avg_pool2d),
    pass_over("_adaptive_avg_pool2d_backward", rules::like<1, Like::Suggested>),
    pass_over("_adaptive_avg_pool3d", rules::adaptive_avg_pool3d),
    pass_over("_adaptive_avg_pool3d_backward", rules::like<1, Like::Contiguous>),
    pass_over("fractional_max_pool3d_backward", rules::like<1, Like::Contiguous>),
    pass_over("grid_sampler_2d", rules::grid_sampler),
    pass_over("grid_sampler_2d_backward", rules::grid_sampler_backward),
    pass_over("grid_sampler_3d", rules::grid_sampler),
    pass_over("grid_sampler_3d_backward", rules::grid_sampler_backward),
    pass_over("max_pool3d_with_indices", rules::max_pool3d_with_indices),
    pass_over("max_pool3d_with_indices_backward", rules::max_pool3d_backward),
    pass_over("max_unpool2d", rules::max_unpool2d),
    pass_over("max_unpool3d", rules::max_unpool3d),

    // ---- random ----
    draws_unless("train", "native_dropout", rules::native_dropout),
    draws_unless("train", "dropout"),
    draws_unless("training", "rrelu_with_noise", rules::like<0, Like::Contiguous>, RegisterMeta),
    draws_unless("training", "rrelu_with_noise_"),
    draws_unless("training", "rrelu_with_noise_functional"),
    elementwise("_sample_dirichlet", rules::like<0, Like::Contiguous>),
    elementwise("_standard_gamma", rules::like<0, Like::Contiguous>),
    elementwise("binomial", rules::like<0, Like::Contiguous>),
    elementwise("multinomial", rules::multinomial, NeverOnZeros),
    elementwise("poisson", rules::like<0, Like::Contiguous>),
    elementwise("randperm", rules::randperm),
    elementwise("randperm.generator", rules::randperm),

    // ---- layouts and sizes that only a library knows ----
    other("_fft_c2c", rules::only_the_kernel_knows),
    other("_fft_c2r", rules::only_the_kernel_knows),
    other("_fft_r2c", rules::only_the_kernel_knows),
    other("mkldnn_rnn_layer", rules::only_the_kernel_knows),

    // ---- linear algebra ----
    other("_cdist_backward"),
    other("_cholesky_solve_helper", rules::column_major_like_first, RegisterMeta),
    other("_pdist_backward", rules::like<1, Like::Contiguous>),
    other("_pdist_forward", rules::pdist_forward),
    other("cholesky", rules::column_major_like_first, NeverOnZeros),
    other("cholesky_inverse", rules::column_major_like_first, NeverOnZeros),
    other("cholesky_solve", rules::column_major_like_first),
    other("geqrf", rules::geqrf),
    other("linalg_eig", rules::eig),
    other("linalg_householder_product", rules::column_major_like_first),
    other("linalg_matrix_exp", rules::matrix_exp),
    other("linalg_solve_triangular", rules::solve_triangular),
    other("tril_indices", rules::triangle_indices),
    other("triu_indices", rules::triangle_indices),

    // ---- optimizers ----
    elementwise("_amp_foreach_non_finite_check_and_unscale_", rules::nothing, RegisterMeta),
    elementwise("_fused_adagrad", rules::written_lists),
    elementwise("_fused_adagrad_", rules::nothing, RegisterMeta),
    elementwise("_fused_adagrad_.tensor_lr", rules::nothing, RegisterMeta),
    elementwise("_fused_adam", rules::written_lists),
    elementwise("_fused_adam_", rules::nothing, RegisterMeta),
    elementwise("_fused_adam_.tensor_lr", rules::nothing, RegisterMeta),
    elementwise("_fused_adamw", rules::written_lists),
    elementwise("_fused_adamw_", rules::nothing, RegisterMeta),
    elementwise("_fused_adamw_.tensor_lr", rules::nothing, RegisterMeta),
    elementwise("_fused_sgd", rules::written_lists),
    elementwise("_fused_sgd_", rules::nothing, RegisterMeta),
    elementwise("_fused_sgd_.tensor_lr", rules::nothing, RegisterMeta),
};

}  // namespace

std::span<const OpRow> op_rows() { return kRows; }

}  // namespace tandem::ops
