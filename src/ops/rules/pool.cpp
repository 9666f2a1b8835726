#include "ops/rules/rules.h"

namespace tandem::ops::rules {
namespace {

/// The sizes of `type` with its last ones replaced.
Sizes with_last(const TensorType& type, const std::vector<int64_t>& last) {
  Sizes sizes = type.sizes;
  for (size_t i = 0; i < last.size(); ++i) sizes[sizes.size() - last.size() + i] = last[i];
  return sizes;
}

/// A spatial op on batched or single images.
bool has_images(const TensorType& type, int64_t spatial) {
  return type.rank() == spatial + 1 || type.rank() == spatial + 2;
}

/// Laid out as eager does without a batch: as a batch of one, dense like the operand.
TensorType single_volume(TensorType operand, Sizes sizes) {
  operand.strides.insert(operand.strides.begin(), operand.sizes[0] * operand.strides[0]);
  operand.sizes.insert(operand.sizes.begin(), 1);
  sizes.insert(sizes.begin(), 1);
  MemoryFormat format = dense_format(operand).value_or(MemoryFormat::Contiguous);
  TensorType type = with_sizes(operand, std::move(sizes), format);
  type.sizes.erase(type.sizes.begin());
  type.strides.erase(type.strides.begin());
  return type;
}

std::vector<int64_t> three(std::vector<int64_t> numbers, const std::vector<int64_t>& otherwise) {
  if (numbers.empty()) return otherwise;
  if (numbers.size() == 1) numbers.resize(3, numbers[0]);
  return numbers;
}

Results adaptive(const MetaCall& call, int64_t spatial, bool suggested) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> output = args.integers("output_size");
  bool fits = has_images(*self, spatial) && output.size() == static_cast<size_t>(spatial);
  for (size_t i = 1; fits && i < self->sizes.size(); ++i) fits = !(self->sizes[i] == ir::Size(0));
  for (int64_t size : output) fits = fits && size >= 0;
  if (!fits) return std::nullopt;
  return answer(with_sizes(*self, with_last(*self, output),
                           suggested ? suggested_format(*self) : MemoryFormat::Contiguous));
}

/// `pad` lists front and back of the last dimension first.
Results padded(const MetaCall& call, int64_t spatial) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> pad = args.integers("padding");
  if (!has_images(*self, spatial) || pad.size() != static_cast<size_t>(2 * spatial))
    return std::nullopt;
  Sizes sizes = self->sizes;
  bool reflection = call.op.schema().name().find("reflection") != std::string::npos;
  for (size_t i = 0; i < static_cast<size_t>(spatial); ++i) {
    ir::Size& size = sizes[sizes.size() - 1 - i];
    int64_t before = size.value();
    bool legal = before > 0 && before + pad[2 * i] + pad[2 * i + 1] > 0 &&
                 (!reflection || (pad[2 * i] < before && pad[2 * i + 1] < before));
    if (!legal) return std::nullopt;
    size = size + pad[2 * i] + pad[2 * i + 1];
  }
  if (self->rank() == spatial + 2 && sizes[1] == ir::Size(0)) return std::nullopt;
  return answer(with_sizes(*self, std::move(sizes), suggested_format(*self)));
}

}  // namespace

Results adaptive_avg_pool2d(const MetaCall& call) { return adaptive(call, 2, true); }
Results adaptive_avg_pool3d(const MetaCall& call) { return adaptive(call, 3, false); }
Results pad2d(const MetaCall& call) { return padded(call, 2); }
Results pad3d(const MetaCall& call) { return padded(call, 3); }

Results max_pool3d_with_indices(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  if (!has_images(*self, 3)) return std::nullopt;
  std::vector<int64_t> kernel = three(args.integers("kernel_size"), {});
  std::vector<int64_t> stride = three(args.integers("stride"), kernel);
  std::vector<int64_t> padding = three(args.integers("padding"), {0, 0, 0});
  std::vector<int64_t> dilation = three(args.integers("dilation"), {1, 1, 1});
  bool ceil_mode = args.flag("ceil_mode");
  Sizes sizes = self->sizes;
  for (size_t i = 0; i < 3; ++i) {
    ir::Size& size = sizes[sizes.size() - 3 + i];
    if (stride[i] <= 0 || kernel[i] <= 0 || padding[i] < 0 || 2 * padding[i] > kernel[i]) {
      return std::nullopt;
    }
    int64_t before = size.value();
    int64_t room = before + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    int64_t after =
        floordiv(ir::Size(room + (ceil_mode ? stride[i] - 1 : 0)), stride[i]).value() + 1;
    // The last window must start inside the image or its left padding.
    if (ceil_mode && (after - 1) * stride[i] >= before + padding[i]) --after;
    if (after < 1 || before == 0) return std::nullopt;
    size = after;
  }
  if (sizes[sizes.size() - 4] == ir::Size(0)) return std::nullopt;
  MemoryFormat format = suggested_format(*self);
  if (format == MemoryFormat::ChannelsLast) return std::nullopt;  // a single volume: eager refuses
  TensorType output = with_sizes(*self, sizes, format);
  if (self->rank() == 4) output = single_volume(*self, std::move(sizes));
  return answer(output, with_dtype(output, ScalarType::Long));
}

Results max_pool3d_backward(const MetaCall& call) {
  Args args(call);
  const TensorType *grad = args.tensor("grad_output"), *self = args.tensor("self");
  if (!has_images(*self, 3) || grad->rank() != self->rank()) return std::nullopt;
  if (self->rank() == 5) return answer(like_suggested(*self));
  if (suggested_format(*grad) == MemoryFormat::ChannelsLast) return std::nullopt;  // refused
  return answer(single_volume(*grad, self->sizes));
}

Results max_unpool2d(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> output = args.integers("output_size");
  if (!has_images(*self, 2) || output.size() != 2 || !same_sizes(*self, *args.tensor("indices"))) {
    return std::nullopt;
  }
  return answer(with_sizes(*self, with_last(*self, output), suggested_format(*self)));
}

Results max_unpool3d(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> output = args.integers("output_size");
  if (!has_images(*self, 3) || output.size() != 3 || !same_sizes(*self, *args.tensor("indices"))) {
    return std::nullopt;
  }
  return answer(contiguous(*self, with_last(*self, output)));
}

Results pixel_shuffle(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  int64_t factor = args.integer("upscale_factor");
  if (self->rank() < 3 || factor <= 0) return std::nullopt;
  Sizes sizes = self->sizes;
  size_t rank = sizes.size();
  if (!(mod(sizes[rank - 3], factor * factor) == ir::Size(0))) return std::nullopt;
  sizes[rank - 3] = floordiv(sizes[rank - 3], factor * factor);
  sizes[rank - 2] = sizes[rank - 2] * factor;
  sizes[rank - 1] = sizes[rank - 1] * factor;
  return answer(with_sizes(*self, std::move(sizes), suggested_format(*self)));
}

Results pixel_unshuffle(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  int64_t factor = args.integer("downscale_factor");
  if (self->rank() < 3 || factor <= 0) return std::nullopt;
  Sizes sizes = self->sizes;
  size_t rank = sizes.size();
  for (size_t dim : {rank - 2, rank - 1}) {
    if (!(mod(sizes[dim], factor) == ir::Size(0))) return std::nullopt;
    sizes[dim] = floordiv(sizes[dim], factor);
  }
  sizes[rank - 3] = sizes[rank - 3] * (factor * factor);
  return answer(with_sizes(*self, std::move(sizes), suggested_format(*self)));
}

Results grid_sampler(const MetaCall& call) {
  Args args(call);
  const TensorType *input = args.tensor("input"), *grid = args.tensor("grid");
  bool fits = input->rank() == grid->rank() && input->rank() >= 4 && input->dtype == grid->dtype &&
              input->sizes[0] == grid->sizes[0] &&
              grid->sizes.back() == ir::Size(input->rank() - 2);
  for (size_t i = 2; fits && i < input->sizes.size(); ++i) fits = !(input->sizes[i] == ir::Size(0));
  if (!fits) return std::nullopt;
  Sizes sizes{input->sizes[0], input->sizes[1]};
  sizes.insert(sizes.end(), grid->sizes.begin() + 1, grid->sizes.end() - 1);
  return answer(contiguous(*input, std::move(sizes)));
}

Results grid_sampler_backward(const MetaCall& call) {
  Args args(call);
  bool wanted = args.integers("output_mask")[0] != 0;
  return answer(wanted ? tensor_result(like_contiguous(*args.tensor("input"))) : undefined_result(),
                like_contiguous(*args.tensor("grid")));
}

Results im2col(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> kernel = args.integers("kernel_size"), stride = args.integers("stride"),
                       padding = args.integers("padding"), dilation = args.integers("dilation");
  bool fits = has_images(*self, 2) && kernel.size() == 2 && stride.size() == 2 &&
              padding.size() == 2 && dilation.size() == 2;
  if (!fits) return std::nullopt;
  size_t first = self->sizes.size() - 2;
  ir::Size blocks = 1;
  for (size_t i = 0; i < 2; ++i) {
    int64_t room =
        self->sizes[first + i].value() + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (stride[i] <= 0 || room < 0 || self->sizes[first + i] == ir::Size(0)) return std::nullopt;
    blocks = blocks * (room / stride[i] + 1);
  }
  if (self->sizes[first - 1] == ir::Size(0)) return std::nullopt;
  Sizes sizes{self->sizes.begin(), self->sizes.begin() + static_cast<int64_t>(first) - 1};
  sizes.push_back(self->sizes[first - 1] * (kernel[0] * kernel[1]));
  sizes.push_back(blocks);
  return answer(contiguous(*self, std::move(sizes)));
}

Results col2im(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  std::vector<int64_t> output = args.integers("output_size"), kernel = args.integers("kernel_size");
  if (!(self->rank() == 2 || self->rank() == 3) || output.size() != 2 || kernel.size() != 2) {
    return std::nullopt;
  }
  size_t columns = self->sizes.size() - 2;
  int64_t area = kernel[0] * kernel[1];
  if (area <= 0 || !(mod(self->sizes[columns], area) == ir::Size(0))) return std::nullopt;
  Sizes sizes{self->sizes.begin(), self->sizes.begin() + static_cast<int64_t>(columns)};
  sizes.push_back(floordiv(self->sizes[columns], area));
  sizes.insert(sizes.end(), output.begin(), output.end());
  return answer(contiguous(*self, std::move(sizes)));
}

Results unfold_backward(const MetaCall& call) {
  Args args(call);
  std::vector<int64_t> sizes = args.integers("input_sizes");
  return answer(contiguous(*args.tensor("grad_in"), {sizes.begin(), sizes.end()}));
}

}  // namespace tandem::ops::rules
