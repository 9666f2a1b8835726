#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

class LayerRules : public ::testing::TestWithParam<Case> {};

TEST_P(LayerRules, SayWhatEagerDoes) { expect_eager_metadata(GetParam()); }

c10::List<bool> mask(Random& random, int64_t count) {
  c10::List<bool> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(random.integer(0, 3) != 0);
  return list;
}

/// Parameters of bfloat16 data are bfloat16 or float32.
at::ScalarType parameter_dtype(Random& random, at::ScalarType data) {
  return data == at::kBFloat16 && random.coin() ? at::kFloat : data;
}

at::Tensor vector_of(int64_t size, at::ScalarType dtype) { return at::rand({size}).to(dtype); }

std::vector<int64_t> image(Random& random, int64_t spatial) {
  std::vector<int64_t> sizes = random.sizes(spatial + 2, 1);
  if (random.integer(0, 9) == 0) sizes[0] = 0;
  return sizes;
}

// ---- normalisation ----

struct BatchNormArguments {
  at::Tensor input, weight, bias, mean, var;
};

/// Channels last for a kernel that passes over dimensions of size 1: their strides do not say so.
at::Tensor thin_image(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  std::vector<int64_t> memory(sizes.size(), 1);
  memory.front() = sizes.front();
  memory[1] = sizes.back();
  memory.back() = sizes[1];
  return at::rand(memory).to(dtype).transpose(1, -1);
}

BatchNormArguments batch_norm_tensors(Random& random) {
  std::vector<int64_t> sizes = image(random, random.integer(0, 3));
  at::ScalarType dtype = random.floating();
  at::ScalarType parameter = parameter_dtype(random, dtype);
  BatchNormArguments args;
  bool thin = sizes.size() > 3 && random.integer(0, 4) == 0;
  args.input = thin ? thin_image(sizes, dtype) : random.tensor(sizes, dtype);
  if (random.integer(0, 3) != 0) {
    args.weight = vector_of(sizes[1], parameter);
    args.bias = vector_of(sizes[1], parameter);
  }
  args.mean = vector_of(sizes[1], parameter);
  args.var = vector_of(sizes[1], parameter);
  return args;
}

Arguments batch_norm(Random& random) {
  BatchNormArguments t = batch_norm_tensors(random);
  bool training = random.coin();
  if (training && random.integer(0, 3) == 0) t.mean = t.var = at::Tensor();
  return {t.input, t.weight, t.bias, t.mean, t.var, training, 0.1, 1e-5};
}

Arguments batch_norm_functional(Random& random) {
  BatchNormArguments t = batch_norm_tensors(random);
  return {t.input, t.weight, t.bias, t.mean, t.var, random.coin(), 0.1, 1e-5};
}

Arguments batch_norm_no_stats(Random& random) {
  BatchNormArguments t = batch_norm_tensors(random);
  return {t.input, t.weight, t.bias, true, 0.1, 1e-5};
}

Arguments batch_norm_no_training(Random& random) {
  BatchNormArguments t = batch_norm_tensors(random);
  return {t.input, t.weight, t.bias, t.mean, t.var, 0.1, 1e-5};
}

Arguments batch_norm_backward(Random& random) {
  BatchNormArguments t = batch_norm_tensors(random);
  if (t.input.numel() == 0) return {};
  bool training = random.coin();
  auto [output, save_mean, save_invstd] = at::native_batch_norm(
      t.input, t.weight, t.bias, t.mean.clone(), t.var.clone(), training, 0.1, 1e-5);
  at::Tensor grad = random.tensor(t.input.sizes().vec(), t.input.scalar_type());
  return {grad,      t.input,     t.weight, t.mean, t.var,
          save_mean, save_invstd, training, 1e-5,   mask(random, 3)};
}

Arguments batch_norm_backward_with_reserve(Random& random) {
  Arguments args = batch_norm_backward(random);
  if (args.empty()) return args;
  args.emplace_back(at::empty({0}, at::kByte));
  // grad, input, weight, mean, var, save_mean, save_var, update, eps, mask, reserve
  return args;
}

struct LayerNormArguments {
  at::Tensor input, weight, bias;
  std::vector<int64_t> shape;
};

LayerNormArguments layer_norm_tensors(Random& random) {
  LayerNormArguments args;
  std::vector<int64_t> sizes = random.sizes(random.integer(1, 4));
  int64_t normalized = random.integer(1, static_cast<int64_t>(sizes.size()));
  args.shape.assign(sizes.end() - normalized, sizes.end());
  at::ScalarType dtype = random.floating();
  at::ScalarType parameter = parameter_dtype(random, dtype);
  args.input = random.tensor(sizes, dtype);
  args.weight = random.maybe(at::rand(args.shape).to(parameter));
  args.bias = random.maybe(at::rand(args.shape).to(parameter));
  return args;
}

Arguments layer_norm(Random& random) {
  LayerNormArguments t = layer_norm_tensors(random);
  return {t.input, t.shape, t.weight, t.bias, 1e-5};
}

Arguments layer_norm_backward(Random& random) {
  LayerNormArguments t = layer_norm_tensors(random);
  auto [output, mean, rstd] = at::native_layer_norm(t.input, t.shape, t.weight, t.bias, 1e-5);
  c10::List<bool> wanted({random.integer(0, 3) != 0, t.weight.defined(), t.bias.defined()});
  at::Tensor grad = random.tensor(t.input.sizes().vec(), t.input.scalar_type());
  return {grad, t.input, t.shape, mean, rstd, t.weight, t.bias, wanted};
}

struct GroupNormArguments {
  at::Tensor input, weight, bias;
  int64_t n = 0, c = 0, area = 1, groups = 0;
};

GroupNormArguments group_norm_tensors(Random& random) {
  GroupNormArguments args;
  std::vector<int64_t> sizes = image(random, random.integer(0, 3));
  args.groups = random.integer(1, 3);
  sizes[1] = args.groups * random.integer(1, 2);
  args.n = sizes[0];
  args.c = sizes[1];
  for (size_t i = 2; i < sizes.size(); ++i) args.area *= sizes[i];
  at::ScalarType dtype = random.floating();
  at::ScalarType parameter = parameter_dtype(random, dtype);
  args.input = random.tensor(sizes, dtype);
  if (random.integer(0, 3) != 0) {
    args.weight = vector_of(args.c, parameter);
    args.bias = vector_of(args.c, parameter);
  }
  return args;
}

Arguments group_norm(Random& random) {
  GroupNormArguments t = group_norm_tensors(random);
  return {t.input, t.weight, t.bias, t.n, t.c, t.area, t.groups, 1e-5};
}

Arguments group_norm_backward(Random& random) {
  GroupNormArguments t = group_norm_tensors(random);
  // The composites above hand the kernels dense data.
  t.input = t.input.contiguous(t.input.suggest_memory_format());
  auto [output, mean, rstd] =
      at::native_group_norm(t.input, t.weight, t.bias, t.n, t.c, t.area, t.groups, 1e-5);
  at::Tensor grad = random.tensor(t.input.sizes().vec(), t.input.scalar_type());
  c10::List<bool> wanted = mask(random, 3);
  // Eager's kernel for channels last writes the input's gradient even if there is none.
  if (!t.input.is_contiguous()) wanted.set(0, true);
  return {grad, t.input, mean, rstd, t.weight, t.n, t.c, t.area, t.groups, wanted};
}

Arguments weight_norm(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(2, 4), 1);
  at::ScalarType dtype = random.floating();
  int64_t dim = random.coin() ? 0 : static_cast<int64_t>(sizes.size()) - 1;
  std::vector<int64_t> norms(sizes.size(), 1);
  norms[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(dim)];
  return {at::rand(sizes).to(dtype), at::rand(norms).to(dtype), dim};
}

Arguments weight_norm_backward(Random& random) {
  Arguments forward = weight_norm(random);
  at::Tensor v = forward[0].toTensor(), g = forward[1].toTensor();
  int64_t dim = forward[2].toInt();
  auto [w, norms] = at::_weight_norm_interface(v, g, dim);
  return {at::rand_like(v), v, g, norms, dim};
}

// ---- convolution ----

struct ConvArguments {
  at::Tensor input, weight, bias, output;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

ConvArguments conv_tensors(Random& random, int64_t spatial) {
  ConvArguments args;
  size_t count = static_cast<size_t>(spatial);
  args.groups = random.integer(1, 2);
  args.transposed = random.integer(0, 2) == 0;
  int64_t in = args.groups * random.integer(1, 3), out = args.groups * random.integer(1, 3);
  std::vector<int64_t> input{random.integer(0, 9) == 0 ? 0 : random.integer(1, 3), in};
  std::vector<int64_t> weight = args.transposed ? std::vector<int64_t>{in, out / args.groups}
                                                : std::vector<int64_t>{out, in / args.groups};
  for (size_t i = 0; i < count; ++i) {
    input.push_back(random.integer(5, 8));
    weight.push_back(random.integer(1, 3));
    args.stride.push_back(random.integer(1, 2));
    args.padding.push_back(random.integer(0, 1));
    args.dilation.push_back(random.integer(1, 2));
    args.output_padding.push_back(args.transposed ? random.integer(0, args.stride.back() - 1) : 0);
  }
  at::ScalarType dtype = random.floating();
  args.input = random.tensor(input, dtype);
  args.weight = random.tensor(weight, dtype);
  args.bias = random.maybe(vector_of(out, dtype));
  return args;
}

template <int spatial>
Arguments convolution(Random& random) {
  ConvArguments t = conv_tensors(random, spatial);
  return {t.input,    t.weight,     t.bias,           t.stride, t.padding,
          t.dilation, t.transposed, t.output_padding, t.groups};
}

template <int spatial>
Arguments convolution_backward(Random& random) {
  ConvArguments t = conv_tensors(random, spatial);
  // oneDNN writes outside of its memory for a kernel of one point, channels last and unequal
  // strides.
  bool one_point = t.weight.numel() == t.weight.size(0) * t.weight.size(1);
  if (one_point && !t.transposed) std::fill(t.stride.begin(), t.stride.end(), t.stride[0]);
  at::Tensor output = at::convolution(t.input, t.weight, t.bias, t.stride, t.padding, t.dilation,
                                      t.transposed, t.output_padding, t.groups);
  at::Tensor grad = random.tensor(output.sizes().vec(), output.scalar_type());
  c10::IValue bias_sizes;
  // Eager's kernel for an empty batch takes the bias's size from here, and ends the process without
  // it.
  if (t.bias.defined() || t.input.numel() == 0) bias_sizes = std::vector<int64_t>{output.size(1)};
  return {grad,       t.input,      t.weight,         bias_sizes, t.stride,       t.padding,
          t.dilation, t.transposed, t.output_padding, t.groups,   mask(random, 3)};
}

// ---- attention ----

struct AttentionArguments {
  at::Tensor query, key, value;
};

AttentionArguments attention_tensors(Random& random) {
  int64_t batch = random.integer(1, 3), heads = random.integer(1, 3), width = random.integer(2, 8);
  int64_t queries = random.integer(1, 6), keys = random.integer(1, 6);
  at::ScalarType dtype = random.floating();
  bool inside = random.coin();  // as a multi-head layer makes them: heads inside the sequence
  auto make = [&](int64_t length) {
    at::Tensor tensor = at::rand({batch, length, heads, width}).to(dtype).transpose(1, 2);
    return inside ? tensor : tensor.contiguous();
  };
  return {make(queries), make(keys), make(keys)};
}

Arguments attention(Random& random) {
  AttentionArguments t = attention_tensors(random);
  return {t.query, t.key, t.value, 0.0, random.coin()};
}

Arguments attention_backward(Random& random) {
  AttentionArguments t = attention_tensors(random);
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(t.query, t.key, t.value, 0.0, false);
  return {at::rand_like(output), t.query, t.key, t.value, output, logsumexp, 0.0, false};
}

Arguments safe_softmax(Random& random) {
  at::Tensor self = random.tensor(random.sizes(random.integer(1, 4)));
  c10::IValue dtype;
  if (random.integer(0, 3) == 0) dtype = at::kFloat;
  return {self, random.integer(-1, self.dim() - 1), dtype};
}

const Case kCases[] = {
    {"_adaptive_avg_pool2d",
     [](Random& random) {
       std::vector<int64_t> sizes = image(random, 2);
       if (random.coin()) sizes.erase(sizes.begin());
       return Arguments{random.tensor(sizes),
                        std::vector<int64_t>{random.integer(1, 4), random.integer(1, 4)}};
     }},
    {"_batch_norm_no_update", batch_norm_no_training},
    {"_batch_norm_with_update", batch_norm_no_training},
    {"_batch_norm_with_update_functional", batch_norm_no_training},
    {"_native_batch_norm_legit", batch_norm_functional},
    {"_native_batch_norm_legit.no_stats", batch_norm_no_stats},
    {"_native_batch_norm_legit_functional", batch_norm_functional},
    {"_native_batch_norm_legit_no_training", batch_norm_no_training},
    {"_safe_softmax", safe_softmax},
    {"_scaled_dot_product_flash_attention_for_cpu", attention},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
    {"_weight_norm_interface", weight_norm},
    {"_weight_norm_interface_backward", weight_norm_backward},
    {"batch_norm_backward", batch_norm_backward_with_reserve},
    {"convolution", convolution<1>},
    {"convolution", convolution<2>},
    {"convolution", convolution<3>},
    {"convolution_backward", convolution_backward<1>},
    {"convolution_backward", convolution_backward<2>},
    {"convolution_backward", convolution_backward<3>},
    {"native_batch_norm", batch_norm},
    {"native_batch_norm_backward", batch_norm_backward},
    {"native_group_norm", group_norm},
    {"native_group_norm_backward", group_norm_backward},
    {"native_layer_norm", layer_norm},
    {"native_layer_norm_backward", layer_norm_backward},
};

INSTANTIATE_TEST_SUITE_P(All, LayerRules, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace tandem::ops
