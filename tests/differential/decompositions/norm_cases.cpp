#include "cases.h"

#include <ATen/ATen.h>

namespace tandem::test {
namespace {

constexpr int64_t kChannels = 4;

/// Batch norm's input: (N, C) or with one or two dimensions more.
std::vector<int64_t> with_channels(Draw& draw) {
  std::vector<int64_t> sizes{3, kChannels};
  for (int64_t i = draw.integer(0, 2); i > 0; --i) sizes.push_back(draw.integer(2, 5));
  return sizes;
}

at::Tensor vector(Draw& draw, double low = 0.5, double high = 1.5) {
  return draw.uniform({kChannels}, low, high).contiguous();
}

Arguments batch_norm(Draw& draw) {
  return {draw.normal(with_channels(draw)), draw.maybe(vector(draw)), draw.maybe(vector(draw)),
          vector(draw, -1, 1), vector(draw)};
}

Arguments batch_norm_functional(Draw& draw) {
  Arguments args = batch_norm(draw);
  for (const c10::IValue& value : {c10::IValue(draw.coin()), c10::IValue(0.1), c10::IValue(1e-5)})
    args.push_back(value);
  return args;
}

Arguments batch_norm_evaluated(Draw& draw) {
  Arguments args = batch_norm(draw);
  args.emplace_back(0.1);
  args.emplace_back(1e-5);
  return args;
}

Arguments batch_norm_no_stats(Draw& draw) {
  return {draw.normal(with_channels(draw)),
          draw.maybe(vector(draw)),
          draw.maybe(vector(draw)),
          true,
          0.1,
          1e-5};
}

c10::List<bool> mask(bool a, bool b, bool c) { return {a, b, c}; }

Arguments batch_norm_backward(Draw& draw) {
  const std::vector<int64_t> sizes = with_channels(draw);
  const at::Tensor x = draw.normal(sizes), weight = draw.maybe(vector(draw));
  const at::Tensor mean = vector(draw, -1, 1), inverse = vector(draw);
  return {draw.normal(sizes),
          x,
          weight,
          vector(draw, -1, 1),
          vector(draw),
          mean,
          inverse,
          draw.coin(),
          1e-5,
          mask(true, weight.defined(), draw.coin())};
}

Arguments newer_batch_norm_backward(Draw& draw) {
  const std::vector<int64_t> sizes = with_channels(draw);
  const at::Tensor weight = vector(draw), mean = vector(draw, -1, 1), inverse = vector(draw);
  return {draw.normal(sizes),
          draw.normal(sizes),
          weight,
          vector(draw, -1, 1),
          vector(draw),
          mean,
          inverse,
          draw.coin(),
          1e-5,
          mask(true, true, true),
          at::empty({0}, at::TensorOptions().dtype(at::kByte))};
}

struct LayerNorm {
  at::Tensor input, weight, bias;
  std::vector<int64_t> shape;
};

LayerNorm layer_norm_of(Draw& draw) {
  const std::vector<int64_t> sizes{draw.integer(1, 3), draw.integer(2, 4), draw.integer(4, 40)};
  const auto first = sizes.begin() + draw.integer(0, 2);
  const std::vector<int64_t> shape(first, sizes.end());
  const bool affine = draw.coin();
  return {draw.normal(sizes), affine ? draw.normal(shape).contiguous() : at::Tensor(),
          affine && draw.coin() ? draw.normal(shape).contiguous() : at::Tensor(), shape};
}

Arguments layer_norm(Draw& draw) {
  const LayerNorm norm = layer_norm_of(draw);
  return {norm.input, norm.shape, norm.weight, norm.bias, 1e-5};
}

Arguments layer_norm_backward(Draw& draw) {
  const LayerNorm norm = layer_norm_of(draw);
  const auto [y, mean, inverse] =
      at::native_layer_norm(norm.input, norm.shape, norm.weight, norm.bias, 1e-5);
  return {draw.like(norm.input),
          norm.input,
          norm.shape,
          mean,
          inverse,
          norm.weight,
          norm.bias,
          mask(true, norm.weight.defined(), norm.bias.defined())};
}

struct GroupNorm {
  at::Tensor input, weight, bias;
  int64_t batch, channels, pixels, groups;
};

GroupNorm group_norm_of(Draw& draw) {
  GroupNorm norm{{}, {}, {}, 2, 6, 12, draw.coin() ? 2 : 3};
  norm.input =
      draw.normal({2, 6, 3, 4})
          .contiguous(draw.coin() ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast);
  if (draw.coin()) {
    norm.weight = draw.uniform({6}, 0.5, 1.5).contiguous();
    norm.bias = draw.normal({6}).contiguous();
  }
  return norm;
}

Arguments group_norm(Draw& draw) {
  const GroupNorm n = group_norm_of(draw);
  return {n.input, n.weight, n.bias, n.batch, n.channels, n.pixels, n.groups, 1e-5};
}

Arguments group_norm_backward(Draw& draw) {
  const GroupNorm n = group_norm_of(draw);
  const auto [y, mean, inverse] = at::native_group_norm(n.input, n.weight, n.bias, n.batch,
                                                        n.channels, n.pixels, n.groups, 1e-5);
  // Eager's kernel reads a gradient as if it were laid out like the input.
  const at::Tensor g = draw.like(n.input).contiguous(n.input.suggest_memory_format());
  return {
      g,       n.input,    mean,     inverse,  n.weight,
      n.batch, n.channels, n.pixels, n.groups, mask(true, n.weight.defined(), n.weight.defined())};
}

std::vector<int64_t> some_dims(Draw& draw) {
  return draw.coin() ? std::vector<int64_t>{1} : std::vector<int64_t>{0, -1};
}

Arguments mean_of_dims(Draw& draw) {
  return {draw.normal({3, 4, 5}), some_dims(draw), draw.coin()};
}

Arguments variance(Draw& draw) {
  const c10::IValue dims = draw.coin() ? c10::IValue(some_dims(draw)) : c10::IValue();
  const c10::IValue correction = draw.coin() ? c10::IValue(draw.integer(0, 1)) : c10::IValue();
  return {draw.normal({3, 4, 5}), dims, correction, draw.coin()};
}

Arguments softmax(Draw& draw) { return {draw.normal({3, 4, 5}), draw.integer(-1, 2), false}; }

template <bool logarithm>
Arguments softmax_backward(Draw& draw) {
  const int64_t dim = draw.integer(-1, 2);
  const at::Tensor x = draw.normal({3, 4, 5});
  const at::Tensor y = logarithm ? at::log_softmax(x, dim) : at::softmax(x, dim);
  return {draw.like(x), y, dim, static_cast<int64_t>(x.scalar_type())};
}

/// Some rows hold nothing but -inf.
Arguments safe_softmax(Draw& draw) {
  at::Tensor x = draw.normal({3, 4, 5}).contiguous();
  x[1] = -std::numeric_limits<double>::infinity();
  return {x, -1};
}

Arguments logsumexp(Draw& draw) {
  at::Tensor x = draw.normal({3, 4, 5}).contiguous();
  if (draw.coin()) x[1][2] = -std::numeric_limits<double>::infinity();
  return {x, some_dims(draw), draw.coin()};
}

}  // namespace

std::vector<DecompositionCase> norm_cases() {
  return {
      {"_batch_norm_with_update_functional", batch_norm_evaluated},
      {"_native_batch_norm_legit.no_stats", batch_norm_no_stats},
      {"_native_batch_norm_legit_functional", batch_norm_functional},
      {"_native_batch_norm_legit_no_training", batch_norm_evaluated},
      {"batch_norm_backward", newer_batch_norm_backward},
      {"mean", [](Draw& draw) -> Arguments { return {draw.normal(draw.sizes())}; }},
      {"mean.dim", mean_of_dims},
      {"native_batch_norm_backward", batch_norm_backward},
      {"native_group_norm", group_norm},
      {"native_group_norm_backward", group_norm_backward},
      {"native_layer_norm", layer_norm},
      {"native_layer_norm_backward", layer_norm_backward},
      {"std.correction", variance},
      {"var.correction", variance},
      {"var_mean.correction", variance},
      {"_log_softmax", softmax},
      {"_log_softmax_backward_data", softmax_backward<true>},
      {"_safe_softmax", safe_softmax},
      {"_softmax", softmax},
      {"_softmax_backward_data", softmax_backward<false>},
      {"logsumexp", logsumexp},
  };
}

}  // namespace tandem::test
