#include "ops/decompositions/bodies.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace tandem::ops::decompositions {
namespace {

using Dims = std::vector<int64_t>;

Dims range(int64_t from, int64_t to) {
  Dims dims(static_cast<size_t>(std::max<int64_t>(to - from, 0)));
  std::iota(dims.begin(), dims.end(), from);
  return dims;
}

double count(const Expr& x, const Dims& dims) {
  double product = 1;
  for (int64_t dim : dims) product *= static_cast<double>(x.size(dim));
  return product;
}

/// No dimensions means none here; libtorch reads an empty list as all.
Expr sum_over(const Expr& x, const Dims& dims, KeepDims keep) {
  return dims.empty() ? x : sum(x, dims, keep);
}

struct Moments {
  Expr mean, centered, square_sum;  // the first and last with size 1 in the reduced dimensions
};

/// In two passes, which loses little where the mean is large beside the deviation. The sum is one
/// of doubles: that of large float32s need not be a float32 where their mean is. What the mean
/// loses as a float32 may be as large as the deviation: it is taken off by itself.
Moments moments(const Expr& x, const Dims& dims) {
  const Expr sum_of_all = sum_over(to(x, c10::ScalarType::Double), dims, KeepDims::yes);
  const Expr exact_mean = sum_of_all / count(x, dims);
  const Expr mean = to(exact_mean, x.dtype());
  Expr centered = x - mean;
  if (x.dtype() != c10::ScalarType::Double)
    centered = centered - to(exact_mean - to(mean, c10::ScalarType::Double), x.dtype());
  return {mean, centered, sum_over(centered * centered, dims, KeepDims::yes)};
}

Expr inverse_deviation(const Expr& variance, double eps) {
  return reciprocal(sqrt(variance + eps));
}

Expr scaled(Expr y, const Expr& weight, const Expr& bias) {
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

/// A vector over the channels, shaped to be broadcast over dimension 1.
Expr per_channel(const Expr& vector, int64_t rank) {
  if (!vector.defined()) return vector;
  Dims sizes(static_cast<size_t>(rank), 1);
  sizes[1] = vector.numel();
  return view(wide(vector), sizes);
}

Dims all_but_channels(const Expr& x) {
  Dims dims = range(2, x.rank());
  dims.insert(dims.begin(), 0);
  return dims;
}

struct BatchNorm {
  Expr output, mean, inverse, new_mean, new_variance;  // the last two if there are old ones
};

Expr moved(const Expr& old, const Expr& now, double momentum) {
  return now * momentum + wide(old) * (1 - momentum);
}

BatchNorm train_batch_norm(const OpCall& call, const Expr& old_mean, const Expr& old_variance) {
  const Expr x = call.wide("input");
  const Dims dims = all_but_channels(x);
  const double n = count(x, dims), momentum = call.number("momentum");
  const auto [mean, centered, square_sum] = moments(x, dims);
  const Expr inverse = inverse_deviation(square_sum / n, call.number("eps"));
  const Dims channels{x.size(1)};
  BatchNorm results{
      .output = scaled(centered * inverse, per_channel(call.tensor("weight"), x.rank()),
                       per_channel(call.tensor("bias"), x.rank())),
      .mean = view(mean, channels),
      .inverse = view(inverse, channels),
      .new_mean = {},
      .new_variance = {}};
  if (old_mean.defined()) {
    results.new_mean = moved(old_mean, results.mean, momentum);
    results.new_variance = moved(old_variance, view(square_sum, channels) / (n - 1), momentum);
  }
  return results;
}

/// Whether eager's kernel for dense memory takes the call. Its other one rounds in another order.
bool is_dense(const OpCall& call) {
  const auto row_major = [](const Expr& x) { return !x.defined() || x.type().is_contiguous(); };
  for (const char* name : {"weight", "bias", "running_mean", "running_var"})
    if (!row_major(call.tensor(name))) return false;
  const Expr x = call.tensor("input");
  if (row_major(x)) return true;
  if (x.rank() != 4 && x.rank() != 5) return false;
  ir::TensorType channels_last = x.type();
  std::rotate(channels_last.sizes.begin() + 1, channels_last.sizes.begin() + 2,
              channels_last.sizes.end());
  std::rotate(channels_last.strides.begin() + 1, channels_last.strides.begin() + 2,
              channels_last.strides.end());
  return channels_last.is_contiguous();
}

/// With given statistics; the output alone.
Expr evaluate_batch_norm(const OpCall& call) {
  const Expr x = call.wide("input");
  const Expr mean = per_channel(call.tensor("running_mean"), x.rank());
  const Expr inverse =
      inverse_deviation(per_channel(call.tensor("running_var"), x.rank()), call.number("eps"));
  const Expr weight = per_channel(call.tensor("weight"), x.rank());
  const Expr bias = per_channel(call.tensor("bias"), x.rank());
  if (!is_dense(call)) return scaled((x - mean) * inverse, weight, bias);
  // Each product and the sum with it round once, in eager as in a kernel that adds a product.
  Builder& builder = call.builder();
  const Expr factor = weight.defined() ? inverse * weight : inverse;
  const Expr term = bias.defined() ? builder.op("addcmul", {bias, mean, factor}, {{"value", -1.0}})
                                   : 0 - mean * factor;
  return builder.op("addcmul", {term, x, factor});
}

/// A result of no elements.
Expr nothing(const OpCall& call, size_t index) {
  const ir::TensorType& type = *call.result(index);
  return call.builder().full(type.static_sizes(), 0, type.dtype, call.tensor("input"));
}

/// Of `var` and its kin: all dimensions if none are named.
Dims reduced_dims(const OpCall& call, const Expr& x) {
  Dims dims = call.has("dim") ? call.integers("dim") : Dims{};
  return dims.empty() ? range(0, x.rank()) : dims;
}

/// In doubles, as eager's: a deviation may be a float32 where its square is none, and may be
/// smaller than the rounding of the mean.
Moments moments_of_call(const OpCall& call) {
  const Expr x = to(call.tensor("self"), c10::ScalarType::Double);
  Moments result = moments(x, reduced_dims(call, x));
  const double left = count(x, reduced_dims(call, x)) - call.number("correction", 1);
  result.square_sum = result.square_sum / std::max(left, 0.0);
  return result;
}

/// In the sizes that the call returns.
Expr fitted(const OpCall& call, size_t index, const Expr& x) {
  return view(x, call.result(index)->static_sizes());
}

/// A group norm's channels in their groups: (N, groups, C / groups, pixels of any number of
/// dimensions). Splitting one dimension is a view whatever the layout.
Expr in_groups(const Expr& x, int64_t groups) {
  Dims sizes = x.sizes();
  sizes[1] /= groups;
  sizes.insert(sizes.begin() + 1, groups);
  return view(x, sizes);
}

Expr channels_in_groups(const Expr& vector, int64_t groups, int64_t rank) {
  if (!vector.defined()) return vector;
  Dims sizes(static_cast<size_t>(rank), 1);
  sizes[1] = groups;
  sizes[2] = vector.numel() / groups;
  return view(wide(vector), sizes);
}

Expr statistics_of_groups(const Expr& statistics, int64_t rank) {
  Dims sizes(static_cast<size_t>(rank), 1);
  sizes[0] = statistics.size(0);
  sizes[1] = statistics.size(1);
  return view(wide(statistics), sizes);
}

}  // namespace

Results batch_norm_functional(const OpCall& call) {
  if (!call.flag("training")) {
    const Expr mean = call.tensor("running_mean"), variance = call.tensor("running_var");
    return {evaluate_batch_norm(call), nothing(call, 1), nothing(call, 2), mean, variance};
  }
  const BatchNorm r =
      train_batch_norm(call, call.tensor("running_mean"), call.tensor("running_var"));
  return {r.output, r.mean, r.inverse, r.new_mean, r.new_variance};
}

Results batch_norm_update_functional(const OpCall& call) {
  const BatchNorm r =
      train_batch_norm(call, call.tensor("running_mean"), call.tensor("running_var"));
  return {r.output, r.mean, r.inverse, nothing(call, 3), r.new_mean, r.new_variance};
}

Results batch_norm_no_stats(const OpCall& call) {
  if (!call.flag("training")) return {};
  const BatchNorm r = train_batch_norm(call, {}, {});
  return {r.output, r.mean, r.inverse};
}

Results batch_norm_evaluated(const OpCall& call) {
  return {evaluate_batch_norm(call), nothing(call, 1), nothing(call, 2)};
}

Results batch_norm_backward(const OpCall& call) {
  const Expr g = call.wide("grad_out"), x = call.wide("input");
  const int64_t rank = x.rank();
  const Dims dims = all_but_channels(x);
  const double n = count(x, dims);
  // Two ops share the formula; they name the flag differently.
  const bool newer = call.node().op().operator_name().name == "aten::batch_norm_backward";
  const bool train = call.flag(newer ? "update" : "train");
  const Expr mean = per_channel(call.tensor(train ? "save_mean" : "running_mean"), rank);
  const Expr inverse =
      train ? per_channel(call.tensor(newer ? "save_var" : "save_invstd"), rank)
            : inverse_deviation(per_channel(call.tensor("running_var"), rank), call.number("eps"));
  const Expr weight = per_channel(call.tensor("weight"), rank);
  const std::vector<bool> mask = call.flags("output_mask");
  const Expr g_sum = sum(g, dims, KeepDims::yes);
  const Expr dot = sum((x - mean) * g, dims, KeepDims::yes);

  Results results(3);
  if (mask[0]) {
    const Expr projected = train ? g - g_sum / n - (x - mean) * (dot * inverse * inverse / n) : g;
    results[0] = scaled(projected * inverse, weight, {});
  }
  if (mask[1]) results[1] = view(dot * inverse, {x.size(1)});
  if (mask[2]) results[2] = view(g_sum, {x.size(1)});
  return results;
}

Results group_norm(const OpCall& call) {
  if (call.tensor("input").rank() < 2) return {};
  const int64_t groups = call.integer("group");
  const Expr x = in_groups(call.wide("input"), groups);
  const Dims dims = range(2, x.rank());
  const auto [mean, centered, square_sum] = moments(x, dims);
  const Expr inverse = inverse_deviation(square_sum / count(x, dims), call.number("eps"));
  const Expr y =
      scaled(centered * inverse, channels_in_groups(call.tensor("weight"), groups, x.rank()),
             channels_in_groups(call.tensor("bias"), groups, x.rank()));
  return {view(y, call.tensor("input").sizes()), fitted(call, 1, mean), fitted(call, 2, inverse)};
}

Results group_norm_backward(const OpCall& call) {
  if (call.tensor("input").rank() < 2) return {};
  const int64_t groups = call.integer("group");
  const Expr g = in_groups(call.wide("grad_out"), groups);
  const Expr x = in_groups(call.wide("input"), groups);
  const Expr inverse = statistics_of_groups(call.tensor("rstd"), x.rank());
  const Expr normal = (x - statistics_of_groups(call.tensor("mean"), x.rank())) * inverse;
  const Expr weighted = scaled(g, channels_in_groups(call.tensor("weight"), groups, x.rank()), {});
  const Dims in_group = range(2, x.rank());
  Dims outside_channel = range(3, x.rank());
  outside_channel.insert(outside_channel.begin(), 0);
  const double n = count(x, in_group);
  const std::vector<bool> mask = call.flags("output_mask");

  Results results(3);
  if (mask[0]) {
    const Expr dx = (weighted - sum(weighted, in_group, KeepDims::yes) / n -
                     normal * (sum(weighted * normal, in_group, KeepDims::yes) / n)) *
                    inverse;
    results[0] = view(dx, call.tensor("input").sizes());
  }
  if (mask[1])
    results[1] = view(sum(g * normal, outside_channel, KeepDims::no), {call.integer("C")});
  if (mask[2]) results[2] = view(sum(g, outside_channel, KeepDims::no), {call.integer("C")});
  return results;
}

Results layer_norm(const OpCall& call) {
  const Expr x = call.wide("input");
  const auto normalized = static_cast<int64_t>(call.integers("normalized_shape").size());
  const Dims dims = range(x.rank() - normalized, x.rank());
  const auto [mean, centered, square_sum] = moments(x, dims);
  const Expr inverse = inverse_deviation(square_sum / count(x, dims), call.number("eps"));
  return {scaled(centered * inverse, call.wide("weight"), call.wide("bias")), mean, inverse};
}

Results layer_norm_backward(const OpCall& call) {
  const Expr g = call.wide("grad_out"), x = call.wide("input"), inverse = call.wide("rstd");
  const Expr normal = (x - call.wide("mean")) * inverse;
  const Expr weighted = scaled(g, call.wide("weight"), {});
  const auto normalized = static_cast<int64_t>(call.integers("normalized_shape").size());
  const Dims inner = range(x.rank() - normalized, x.rank());
  const Dims outer = range(0, x.rank() - normalized);
  const double n = count(x, inner);
  const std::vector<bool> mask = call.flags("output_mask");

  Results results(3);
  if (mask[0]) {
    results[0] = (weighted - sum(weighted, inner, KeepDims::yes) / n -
                  normal * (sum(weighted * normal, inner, KeepDims::yes) / n)) *
                 inverse;
  }
  if (mask[1]) results[1] = sum_over(g * normal, outer, KeepDims::no);
  if (mask[2]) results[2] = sum_over(g, outer, KeepDims::no);
  return results;
}

Results mean_of_all(const OpCall& call) {
  const Expr x = to(wide(call.tensor("self")), wide_dtype(call.result(0)->dtype));
  return {sum(x, {}, KeepDims::no) / static_cast<double>(x.numel())};
}

Results mean_of_dims(const OpCall& call) {
  const Expr x = to(wide(call.tensor("self")), wide_dtype(call.result(0)->dtype));
  const Dims dims = reduced_dims(call, x);
  return {fitted(call, 0, sum_over(x, dims, KeepDims::yes) / count(x, dims))};
}

Results standard_deviation(const OpCall& call) {
  return {fitted(call, 0, sqrt(moments_of_call(call).square_sum))};
}

Results variance(const OpCall& call) { return {fitted(call, 0, moments_of_call(call).square_sum)}; }

Results variance_and_mean(const OpCall& call) {
  const Moments m = moments_of_call(call);
  return {fitted(call, 0, m.square_sum), fitted(call, 1, m.mean)};
}

}  // namespace tandem::ops::decompositions
