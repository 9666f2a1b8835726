#include "ops/rules/rules.h"

namespace tandem::ops::rules {
namespace {

/// Laid out as on the CPU. Functionalization asks on the Meta device, whatever the real one is.
bool on_host(const TensorType& type) { return type.device.is_cpu() || type.device.is_meta(); }

/// Statistics take the dtype of the first parameter that is there: bfloat16 data with float32
/// parameters has float32 statistics. Off the CPU it is the accumulation type.
ScalarType statistics_dtype(const TensorType& input,
                            std::initializer_list<const TensorType*> parameters) {
  if (!on_host(input)) {
    bool narrow = input.dtype == ScalarType::Half || input.dtype == ScalarType::BFloat16;
    return narrow ? ScalarType::Float : input.dtype;
  }
  for (const TensorType* parameter : parameters) {
    if (parameter) return parameter->dtype;
  }
  return input.dtype;
}

/// The layout of a batch norm's result or gradient: `fast` if the other operands allow the kernel
/// for dense data.
TensorType like_batch_norm(const TensorType& input, bool fast) {
  auto format = fast && on_host(input) ? dense_format(input) : std::nullopt;
  return with_sizes(input, input.sizes, format.value_or(suggested_format(input)));
}

bool is_dense_vector(const TensorType* type) {
  return !type || dense_format(*type) == MemoryFormat::Contiguous;
}

struct BatchNorm {
  TensorType output, save;
};

std::optional<BatchNorm> batch_norm_types(const Args& args, bool has_statistics, bool saves) {
  const TensorType* input = args.tensor("input");
  if (!input || input->rank() < 2) return std::nullopt;
  ScalarType dtype =
      statistics_dtype(*input, {args.tensor("weight"), args.tensor("bias"),
                                has_statistics ? args.tensor("running_mean") : nullptr});
  bool fast = is_dense_vector(args.tensor("weight")) && is_dense_vector(args.tensor("bias"));
  if (has_statistics) {
    fast = fast && is_dense_vector(args.tensor("running_mean")) &&
           is_dense_vector(args.tensor("running_var"));
  }
  Sizes sizes{saves ? input->sizes[1] : ir::Size(0)};
  return BatchNorm{like_batch_norm(*input, fast), contiguous(*input, sizes, dtype)};
}

TensorType empty_reserve(const TensorType& like) { return contiguous(like, {0}, ScalarType::Byte); }

}  // namespace

Results batch_norm(const MetaCall& call) {
  Args args(call);
  auto types = batch_norm_types(args, true, args.flag("training"));
  if (!types) return std::nullopt;
  return answer(types->output, types->save, types->save);
}

Results batch_norm_functional(const MetaCall& call) {
  Args args(call);
  auto types = batch_norm_types(args, true, args.flag("training"));
  const TensorType *mean = args.tensor("running_mean"), *var = args.tensor("running_var");
  if (!types || !mean || !var) return std::nullopt;
  return answer(types->output, types->save, types->save, like_preserved(*mean),
                like_preserved(*var));
}

Results batch_norm_no_stats(const MetaCall& call) {
  Args args(call);
  auto types = batch_norm_types(args, false, args.flag("training"));
  if (!types) return std::nullopt;
  return answer(types->output, types->save, types->save);
}

Results batch_norm_no_training(const MetaCall& call) {
  auto types = batch_norm_types(Args(call), true, false);
  if (!types) return std::nullopt;
  return answer(types->output, types->save, types->save);
}

// The reserve holds what cuDNN wants to see again; its size is cuDNN's secret, and 0 on the CPU.
Results batch_norm_with_update(const MetaCall& call) {
  auto types = batch_norm_types(Args(call), true, true);
  if (!types || !on_host(types->output)) return std::nullopt;
  return answer(types->output, types->save, types->save, empty_reserve(types->output));
}

Results batch_norm_with_update_functional(const MetaCall& call) {
  Args args(call);
  auto types = batch_norm_types(args, true, true);
  const TensorType *mean = args.tensor("running_mean"), *var = args.tensor("running_var");
  if (!types || !mean || !var || !on_host(*mean)) return std::nullopt;
  return answer(types->output, types->save, types->save, empty_reserve(types->output),
                like_preserved(*mean), like_preserved(*var));
}

Results batch_norm_no_update(const MetaCall& call) {
  Args args(call);
  auto types = batch_norm_types(args, true, false);
  if (!types || args.none("running_mean") || !on_host(types->output)) return std::nullopt;
  return answer(types->output, types->save, types->save, empty_reserve(types->output));
}

Results batch_norm_backward(const MetaCall& call) {
  Args args(call);
  const TensorType *input = args.tensor("input"), *grad = args.tensor("grad_out");
  std::vector<int64_t> mask = args.integers("output_mask");
  if (!input || !grad || input->rank() < 2) return std::nullopt;
  ScalarType dtype = statistics_dtype(*input, {args.tensor("weight"), args.tensor("running_mean")});
  bool fast = dense_format(*grad) && suggested_format(*input) == suggested_format(*grad);
  TensorType parameter = contiguous(*input, {input->sizes[1]}, dtype);
  return answer(mask[0] ? tensor_result(like_batch_norm(*input, fast)) : undefined_result(),
                mask[1] ? tensor_result(parameter) : undefined_result(),
                mask[2] ? tensor_result(parameter) : undefined_result());
}

Results layer_norm(const MetaCall& call) {
  Args args(call);
  const TensorType* input = args.tensor("input");
  size_t normalized = args.integers("normalized_shape").size();
  if (!input || input->sizes.size() < normalized || normalized == 0) return std::nullopt;
  std::vector<int64_t> shape = args.integers("normalized_shape");
  Sizes sizes = input->sizes;
  for (size_t i = 0; i < normalized; ++i) {
    ir::Size& size = sizes[sizes.size() - normalized + i];
    if (!(size == ir::Size(shape[i]))) return std::nullopt;
    size = 1;
  }
  for (const char* name : {"weight", "bias"}) {
    const TensorType* parameter = args.tensor(name);
    if (parameter && parameter->sizes != Sizes(shape.begin(), shape.end())) return std::nullopt;
  }
  ScalarType dtype = statistics_dtype(*input, {args.tensor("weight"), args.tensor("bias")});
  TensorType statistics = contiguous(*input, std::move(sizes), dtype);
  return answer(like_contiguous(*input), statistics, statistics);
}

Results layer_norm_backward(const MetaCall& call) {
  Args args(call);
  const TensorType *input = args.tensor("input"), *weight = args.tensor("weight"),
                   *bias = args.tensor("bias");
  std::vector<int64_t> mask = args.integers("output_mask");
  if (!input || (mask[1] && !weight) || (mask[2] && !weight && !bias)) return std::nullopt;
  return answer(
      mask[0] ? tensor_result(like_contiguous(*input)) : undefined_result(),
      mask[1] ? tensor_result(like_contiguous(*weight)) : undefined_result(),
      mask[2] ? tensor_result(like_contiguous(bias ? *bias : *weight)) : undefined_result());
}

Results group_norm(const MetaCall& call) {
  Args args(call);
  const TensorType* input = args.tensor("input");
  int64_t n = args.integer("N"), c = args.integer("C"), groups = args.integer("group");
  bool fits = input && groups > 0 && c % groups == 0 &&
              input->numel() == ir::Size(n * c * args.integer("HxW"));
  if (!fits) return std::nullopt;
  for (const char* name : {"weight", "bias"}) {
    const TensorType* parameter = args.tensor(name);
    if (parameter && !(parameter->numel() == ir::Size(c))) return std::nullopt;
  }
  ScalarType dtype = statistics_dtype(*input, {args.tensor("weight"), args.tensor("bias")});
  TensorType statistics = contiguous(*input, {n, groups}, dtype);
  return answer(like_suggested(*input), statistics, statistics);
}

Results group_norm_backward(const MetaCall& call) {
  Args args(call);
  const TensorType* input = args.tensor("input");
  std::vector<int64_t> mask = args.integers("output_mask");
  if (!input) return std::nullopt;
  ScalarType dtype = statistics_dtype(*input, {args.tensor("weight"), args.tensor("mean")});
  TensorType parameter = contiguous(*input, {args.integer("C")}, dtype);
  return answer(mask[0] ? tensor_result(like_suggested(*input)) : undefined_result(),
                mask[1] ? tensor_result(parameter) : undefined_result(),
                mask[2] ? tensor_result(parameter) : undefined_result());
}

Results weight_norm(const MetaCall& call) {
  Args args(call);
  const TensorType *v = args.tensor("v"), *g = args.tensor("g");
  TensorType norms = like_contiguous(*g);
  if (g->dtype == ScalarType::BFloat16) norms.dtype = ScalarType::Float;
  return answer(like_contiguous(*v), norms);
}

Results weight_norm_backward(const MetaCall& call) {
  Args args(call);
  return answer(like_contiguous(*args.tensor("saved_v")), like_contiguous(*args.tensor("saved_g")));
}

}  // namespace tandem::ops::rules
