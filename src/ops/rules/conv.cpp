#include "ops/metadata/meta_tensor.h"
#include "ops/rules/rules.h"

#include <ATen/native/ConvUtils.h>

namespace tandem::ops::rules {
namespace {

/// One number for all spatial dimensions, or one for each.
std::vector<int64_t> per_dimension(std::vector<int64_t> numbers, size_t count) {
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  return numbers;
}

std::vector<c10::SymInt> symbolic(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

/// Which of libtorch's convolutions is chosen, and the layout that it gives its results.
struct Choice {
  bool onednn = false;
  MemoryFormat format = MemoryFormat::Contiguous;
};

/// One spatial dimension is computed as the second of two.
TensorMeta with_second_dimension(TensorMeta meta) {
  TensorType type = *meta.type;
  type.strides.insert(type.strides.begin() + 2, type.sizes[2] * type.strides[2]);
  type.sizes.insert(type.sizes.begin() + 2, 1);
  meta.type = std::make_shared<const TensorType>(std::move(type));
  return meta;
}

TensorType laid_out(const TensorType& like, Sizes sizes, MemoryFormat format) {
  bool one_dimension = sizes.size() == 3;
  if (one_dimension) sizes.insert(sizes.begin() + 2, 1);
  TensorType type = with_sizes(like, std::move(sizes), format);
  if (one_dimension) {
    type.sizes.erase(type.sizes.begin() + 2);
    type.strides.erase(type.strides.begin() + 2);
  }
  return type;
}

/// Also makes eager's own checks of the arguments.
Choice choose(const Args& args, const TensorMeta& bias, const std::vector<int64_t>& bias_sizes) {
  using at::native::ConvBackend;
  size_t spatial = static_cast<size_t>(args.tensor("input")->rank()) - 2;
  auto numbers = [&](const char* name) {
    return symbolic(per_dimension(args.integers(name), spatial));
  };
  TensorMeta input_meta = args.meta("input");
  // One spatial dimension is computed of a contiguous copy; a hollow tensor cannot be copied. What
  // is contiguous is not copied: strides of dimensions with one element then choose the layout.
  if (spatial == 1 && !input_meta.type->is_contiguous()) {
    input_meta.type = std::make_shared<const TensorType>(like_contiguous(*input_meta.type));
  }
  at::Tensor input = to_hollow_tensor(input_meta);
  at::Tensor weight = to_hollow_tensor(args.meta("weight"));
  std::optional<at::Tensor> bias_tensor;
  if (bias.type) bias_tensor = to_hollow_tensor(bias);
  std::vector<c10::SymInt> bias_symbols = symbolic(bias_sizes);
  at::OptionalSymIntArrayRef bias_ref;
  if (!bias_sizes.empty()) bias_ref = c10::SymIntArrayRef(bias_symbols);
  ConvBackend backend = at::native::select_conv_backend(
      input, weight, bias_tensor, numbers("stride"), numbers("padding"), numbers("dilation"),
      args.flag("transposed"), numbers("output_padding"), args.integer("groups"), bias_ref);

  Choice choice;
  choice.onednn = backend == ConvBackend::Mkldnn || backend == ConvBackend::MkldnnTranspose;
  // An empty batch runs no kernel, and the plain 3-d kernels answer contiguously whatever comes in.
  bool contiguous =
      input.numel() == 0 || (spatial == 3 && !choice.onednn && input.device().is_cpu());
  if (contiguous) return choice;
  if (spatial == 1) {
    input = to_hollow_tensor(with_second_dimension(input_meta));
    weight = to_hollow_tensor(with_second_dimension(args.meta("weight")));
  }
  choice.format = at::native::_determine_backend_memory_format(input, weight, backend);
  return choice;
}

bool is_traceable(const Args& args) {
  const TensorType *input = args.tensor("input"), *weight = args.tensor("weight");
  return input && weight && input->rank() >= 3 && input->rank() <= 5 &&
         input->rank() == weight->rank() && !c10::isComplexType(input->dtype) &&
         input->dtype == weight->dtype;
}

}  // namespace

Results convolution(const MetaCall& call) {
  Args args(call);
  if (!is_traceable(args)) return std::nullopt;
  const TensorType &input = *args.tensor("input"), &weight = *args.tensor("weight");
  Choice choice = choose(args, args.meta("bias"), {});

  size_t spatial = static_cast<size_t>(input.rank()) - 2;
  auto stride = per_dimension(args.integers("stride"), spatial);
  auto padding = per_dimension(args.integers("padding"), spatial);
  auto dilation = per_dimension(args.integers("dilation"), spatial);
  auto output_padding = per_dimension(args.integers("output_padding"), spatial);
  bool transposed = args.flag("transposed");
  Sizes sizes{input.sizes[0],
              transposed ? weight.sizes[1] * ir::Size(args.integer("groups")) : weight.sizes[0]};
  for (size_t i = 0; i < spatial; ++i) {
    ir::Size size = input.sizes[i + 2];
    ir::Size reach = ir::Size(dilation[i]) * (weight.sizes[i + 2] - 1);
    sizes.push_back(transposed
                        ? (size - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i] + 1
                        : floordiv(size + 2 * padding[i] - reach - 1, stride[i]) + 1);
  }
  return answer(laid_out(input, std::move(sizes), choice.format));
}

Results convolution_backward(const MetaCall& call) {
  Args args(call);
  if (!is_traceable(args)) return std::nullopt;
  const TensorType &input = *args.tensor("input"), &weight = *args.tensor("weight");
  const TensorType& grad = *args.tensor("grad_output");
  Choice choice = choose(args, {}, args.integers("bias_sizes"));
  std::vector<int64_t> mask = args.integers("output_mask");
  // An empty batch has gradients of zero, in the layout of the weight.
  if (input.numel() == ir::Size(0)) {
    return answer(mask[0] ? tensor_result(like_preserved(input)) : undefined_result(),
                  mask[1] ? tensor_result(like_preserved(weight)) : undefined_result(),
                  mask[2] ? tensor_result(contiguous(grad, {grad.sizes[1]})) : undefined_result());
  }
  // oneDNN computes the gradients of weight and bias together, and returns the first unasked; eager
  // then forgets to take back the dimension that it added to a 1-d convolution.
  bool unasked = !mask[1] && mask[2] && choice.onednn;
  Sizes weight_sizes = weight.sizes;
  if (unasked && weight.rank() == 3) weight_sizes.insert(weight_sizes.begin() + 2, 1);
  return answer(
      mask[0] ? tensor_result(laid_out(input, input.sizes, choice.format)) : undefined_result(),
      mask[1] || unasked ? tensor_result(laid_out(weight, weight_sizes, choice.format))
                         : undefined_result(),
      mask[2] ? tensor_result(contiguous(grad, {grad.sizes[1]})) : undefined_result());
}

}  // namespace tandem::ops::rules
