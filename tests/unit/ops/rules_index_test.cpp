#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

class IndexRules : public ::testing::TestWithParam<Case> {};

TEST_P(IndexRules, SayWhatEagerDoes) { expect_eager_metadata(GetParam()); }

int64_t any_dim(Random& random, const at::Tensor& tensor) {
  return tensor.dim() == 0 ? 0 : random.integer(-tensor.dim(), tensor.dim() - 1);
}

at::Tensor any_tensor(Random& random, int64_t least_rank = 0) {
  return random.tensor(random.sizes(random.integer(least_rank, 5)));
}

std::vector<int64_t> pair(int64_t a, int64_t b) { return {a, b}; }

// ---- selecting ----

Arguments index_select(Random& random) {
  at::Tensor self = any_tensor(random);
  int64_t dim = any_dim(random, self);
  int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  int64_t count = self.dim() == 0 ? 1 : size == 0 ? 0 : random.integer(0, 4);
  return {self, dim, random.indices({count}, size)};
}

/// Of nothing: anything else is left to libtorch.
Arguments index_add(Random& random) {
  at::Tensor self = any_tensor(random);
  if (self.dim() == 0) return {};
  int64_t dim = any_dim(random, self);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = 0;
  return {self, dim, random.indices({0}, 1), random.tensor(sizes, self.scalar_type())};
}

Arguments index_reduce(Random& random) {
  Arguments args = index_add(random);
  if (!args.empty()) args.emplace_back("amax");
  return args;
}

Arguments take(Random& random) {
  at::Tensor self = any_tensor(random);
  if (self.numel() == 0) return {self, at::empty({2, 0}, at::kLong)};
  return {self, random.indices(random.sizes(random.integer(0, 3)), self.numel())};
}

Arguments embedding(Random& random) {
  at::Tensor weight = random.tensor({random.integer(1, 5), random.integer(0, 4)});
  return {weight, random.indices(random.sizes(random.integer(0, 3)), weight.size(0))};
}

Arguments embedding_dense_backward(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(1, 3));
  at::Tensor indices = random.indices(sizes, 4);
  sizes.push_back(random.integer(1, 4));
  return {random.tensor(sizes), indices, 4, -1, false};
}

struct Bags {
  at::Tensor weight, indices, offsets, per_sample;
  int64_t mode = 0;
  bool include_last = false;
  int64_t padding = -1;
};

Bags bags(Random& random) {
  Bags bags;
  at::ScalarType dtype = random.coin() ? at::kFloat : at::kDouble;
  bags.weight = random.tensor({5, random.integer(1, 4)}, dtype);
  bags.indices = random.indices({random.integer(2, 6)}, 5);
  bags.mode = random.integer(0, 2);
  bags.include_last = random.coin();
  bags.offsets = bags.include_last ? at::tensor({int64_t{0}, int64_t{1}, bags.indices.size(0)})
                                   : at::tensor({int64_t{0}, int64_t{1}});
  if (bags.mode == 0 && random.coin()) bags.per_sample = at::rand(bags.indices.sizes()).to(dtype);
  if (random.integer(0, 3) == 0) bags.padding = 1;
  return bags;
}

Arguments embedding_bag(Random& random) {
  Bags b = bags(random);
  return {b.weight, b.indices,    b.offsets,      false,    b.mode,
          false,    b.per_sample, b.include_last, b.padding};
}

// Outside its fast path the forward-only kernel is answered by the general one.
Arguments embedding_bag_forward_only(Random& random) {
  Bags b = bags(random);
  bool direct = b.mode == 0 && b.weight.scalar_type() == at::kFloat && b.weight.stride(1) == 1 &&
                b.padding < 0;
  if (b.mode == 0 && b.include_last && !direct) return {};
  return {b.weight, b.indices,    b.offsets,      false,    b.mode,
          false,    b.per_sample, b.include_last, b.padding};
}

Arguments embedding_bag_backward(Random& random) {
  Bags b = bags(random);
  b.mode = random.integer(0, 1);
  b.per_sample = at::Tensor();
  auto [output, offset2bag, bag_size, max_indices] = at::_embedding_bag(
      b.weight, b.indices, b.offsets, false, b.mode, false, {}, b.include_last, b.padding);
  at::Tensor grad = at::rand_like(output);
  return {grad,  b.indices, b.offsets, offset2bag,    bag_size, max_indices, b.weight.size(0),
          false, b.mode,    false,     c10::IValue(), b.padding};
}

Arguments embedding_bag_weights_backward(Random& random) {
  Bags b = bags(random);
  auto [output, offset2bag, bag_size, max_indices] = at::_embedding_bag(
      b.weight, b.indices, b.offsets, false, 0, false,
      at::rand(b.indices.sizes()).to(b.weight.dtype()), b.include_last, b.padding);
  return {at::rand_like(output), b.weight, b.indices, b.offsets, offset2bag, 0, b.padding};
}

Arguments embedding_bag_dense_backward(Random& random) {
  Bags b = bags(random);
  b.mode = 1;  // the mean always keeps offset2bag
  auto [output, offset2bag, bag_size, max_indices] = at::_embedding_bag(
      b.weight, b.indices, b.offsets, false, b.mode, false, {}, b.include_last, b.padding);
  return {at::rand_like(output), b.indices, offset2bag, bag_size,      max_indices,
          b.weight.size(0),      false,     b.mode,     c10::IValue(), b.padding};
}

Arguments bucketize(Random& random) {
  return {any_tensor(random), at::rand({4}), random.coin(), random.coin()};
}

Arguments searchsorted(Random& random) {
  return {at::rand({4}), random.tensor(random.sizes(random.integer(0, 3)), at::kFloat),
          random.coin()};
}

Arguments segment_reduce(Random& random) {
  at::Tensor data = at::rand({6, random.integer(1, 4)});
  return {data,          "sum",         at::tensor({int64_t{2}, int64_t{1}, int64_t{3}}),
          c10::IValue(), c10::IValue(), 0};
}

Arguments segment_reduce_backward(Random& random) {
  Arguments forward = segment_reduce(random);
  at::Tensor data = forward[0].toTensor();
  at::Tensor output = at::segment_reduce(data, "sum", forward[2].toTensor());
  return {at::rand_like(output), output, data, "sum", forward[2], c10::IValue(), 0};
}

Arguments masked_index_put(Random& random) {
  at::Tensor self = random.tensor({5, 4}, at::kFloat);
  c10::List<std::optional<at::Tensor>> indices({random.indices({3}, 5), random.indices({3}, 4)});
  return {self, at::ones({3}, at::kBool), indices, at::rand({3})};
}

Arguments index_put(Random& random) {
  at::Tensor self = random.tensor({5, 4}, at::kFloat);
  c10::List<std::optional<at::Tensor>> indices({random.tensor({5}, at::kFloat).gt(0)});
  return {self, indices, at::rand({4}), random.integer(0, 1) == 1};
}

Arguments index_put_impl(Random& random) {
  Arguments arguments = index_put(random);
  arguments.push_back(false);
  return arguments;
}

Arguments repeat_interleave(Random& random) {
  int64_t count = random.integer(1, 4);
  return {at::full({count}, 2, at::kLong), 2 * count};
}

// ---- rearranging ----

Arguments flip(Random& random) {
  at::Tensor self = any_tensor(random, 1);
  return {self, std::vector<int64_t>{any_dim(random, self)}};
}

Arguments roll(Random& random) {
  at::Tensor self = any_tensor(random, 1);
  return {self, std::vector<int64_t>{random.integer(-2, 3)},
          std::vector<int64_t>{any_dim(random, self)}};
}

Arguments pixel_shuffle(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(3, 5), 1);
  sizes[sizes.size() - 3] = 4 * random.integer(1, 2);
  return {random.tensor(sizes), 2};
}

Arguments pixel_unshuffle(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(3, 5), 1);
  sizes[sizes.size() - 2] = sizes[sizes.size() - 1] = 4;
  return {random.tensor(sizes), 2};
}

Arguments channel_shuffle(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(3, 5), 1);
  sizes[1] = 2 * random.integer(1, 3);
  return {random.tensor(sizes), 2};
}

Arguments im2col(Random& random) {
  std::vector<int64_t> sizes{random.integer(1, 3), random.integer(1, 3), random.integer(4, 6),
                             random.integer(4, 6)};
  if (random.integer(0, 3) == 0) sizes.erase(sizes.begin());
  return {random.tensor(sizes), pair(random.integer(1, 3), 2), pair(1, random.integer(1, 2)),
          pair(random.integer(0, 1), 1), pair(random.integer(1, 2), 1)};
}

Arguments col2im(Random& random) {
  std::vector<int64_t> sizes{random.integer(1, 3), 4 * random.integer(1, 2), 12};
  if (random.integer(0, 3) == 0) sizes.erase(sizes.begin());
  return {random.tensor(sizes), pair(4, 5), pair(2, 2), pair(1, 1), pair(0, 0), pair(1, 1)};
}

Arguments unfold_backward(Random& random) {
  at::Tensor self = random.tensor({random.integer(1, 3), 6, random.integer(1, 3)});
  at::Tensor windows = self.unfold(1, 3, 2);
  return {windows, self.sizes().vec(), 1, 3, 2};
}

// ---- padding ----

template <int spatial>
std::vector<int64_t> padded_image(Random& random) {
  std::vector<int64_t> sizes = random.sizes(2, 1);
  for (int i = 0; i < spatial; ++i) sizes.push_back(random.integer(3, 5));
  if (random.integer(0, 3) == 0) sizes.erase(sizes.begin());
  return sizes;
}

template <int spatial>
std::vector<int64_t> any_padding(Random& random) {
  std::vector<int64_t> padding;
  for (int i = 0; i < 2 * spatial; ++i) padding.push_back(random.integer(0, 2));
  return padding;
}

template <int spatial>
Arguments pad(Random& random) {
  at::Tensor self = random.tensor(padded_image<spatial>(random));
  return {self, any_padding<spatial>(random)};
}

template <int spatial>
Arguments pad_backward(Random& random) {
  at::ScalarType dtype = random.floating();
  at::Tensor self = random.tensor(padded_image<spatial>(random), dtype);
  std::vector<int64_t> padding = any_padding<spatial>(random), sizes = self.sizes().vec();
  for (size_t i = 0; i < spatial; ++i)
    sizes[sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  return {random.tensor(sizes, dtype), self, padding};
}

const Case kCases[] = {
    {"_embedding_bag", embedding_bag},
    {"_embedding_bag_backward", embedding_bag_backward},
    {"_embedding_bag_dense_backward", embedding_bag_dense_backward},
    {"_embedding_bag_forward_only", embedding_bag_forward_only},
    {"_embedding_bag_per_sample_weights_backward", embedding_bag_weights_backward},
    {"_segment_reduce_backward", segment_reduce_backward},
    {"_unsafe_masked_index_put_accumulate", masked_index_put},
    {"bucketize.Tensor", bucketize},
    {"channel_shuffle", channel_shuffle},
    {"col2im", col2im},
    {"embedding", embedding},
    {"embedding_dense_backward", embedding_dense_backward},
    {"flip", flip},
    {"im2col", im2col},
    {"index_add", index_add},
    {"index_put", index_put},
    {"_index_put_impl", index_put_impl},
    {"index_reduce", index_reduce},
    {"index_select", index_select},
    {"native_channel_shuffle", channel_shuffle},
    {"pixel_shuffle", pixel_shuffle},
    {"pixel_unshuffle", pixel_unshuffle},
    {"reflection_pad2d", pad<2>},
    {"reflection_pad2d_backward", pad_backward<2>},
    {"reflection_pad3d", pad<3>},
    {"reflection_pad3d_backward", pad_backward<3>},
    {"repeat_interleave.Tensor", repeat_interleave},
    {"replication_pad2d", pad<2>},
    {"replication_pad2d_backward", pad_backward<2>},
    {"replication_pad3d", pad<3>},
    {"replication_pad3d_backward", pad_backward<3>},
    {"roll", roll},
    {"searchsorted.Tensor", searchsorted},
    {"segment_reduce", segment_reduce},
    {"take", take},
    {"unfold_backward", unfold_backward},
};

INSTANTIATE_TEST_SUITE_P(All, IndexRules, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace tandem::ops
