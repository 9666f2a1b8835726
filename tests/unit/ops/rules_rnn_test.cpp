#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

class LibraryRules : public ::testing::TestWithParam<Case> {};

TEST_P(LibraryRules, SayWhatEagerDoes) { expect_eager_metadata(GetParam()); }

constexpr int64_t kLstm = 2;

struct RnnLayer {
  at::Tensor input, weight_input, weight_hidden, bias_input, bias_hidden, hx, cx;
  int64_t hidden;
};

RnnLayer rnn_layer(Random& random) {
  const int64_t features = random.integer(1, 5), hidden = random.integer(1, 5);
  const int64_t batch = random.integer(1, 4), length = random.integer(1, 4);
  const at::ScalarType dtype = random.coin() ? at::kFloat : at::kBFloat16;
  const auto tensor = [&](std::vector<int64_t> sizes) { return at::rand(sizes).to(dtype); };
  return {.input = tensor({length, batch, features}),
          .weight_input = tensor({4 * hidden, features}),
          .weight_hidden = tensor({4 * hidden, hidden}),
          .bias_input = tensor({4 * hidden}),
          .bias_hidden = tensor({4 * hidden}),
          .hx = tensor({batch, hidden}),
          .cx = tensor({batch, hidden}),
          .hidden = hidden};
}

Arguments rnn_forward(Random& random) {
  const RnnLayer l = rnn_layer(random);
  return {l.input,       l.weight_input, l.weight_hidden,
          l.bias_input,  l.bias_hidden,  l.hx,
          l.cx,          random.coin(),  std::vector<int64_t>{},
          kLstm,         l.hidden,       1,
          random.coin(), false,          false,
          true};
}

Arguments rnn_backward(Random& random) {
  const RnnLayer l = rnn_layer(random);
  const bool reverse = random.coin();
  auto [output, hy, cy, workspace] =
      at::mkldnn_rnn_layer(l.input, l.weight_input, l.weight_hidden, l.bias_input, l.bias_hidden,
                           l.hx, l.cx, reverse, {}, kLstm, l.hidden, 1, true, false, false, true);
  return {l.input,
          l.weight_input,
          l.weight_hidden,
          l.bias_input,
          l.bias_hidden,
          l.hx,
          l.cx,
          output,
          hy,
          cy,
          at::rand_like(output),
          random.maybe(at::rand_like(hy)),
          random.maybe(at::rand_like(cy)),
          reverse,
          kLstm,
          l.hidden,
          1,
          true,
          true,
          false,
          std::vector<int64_t>{},
          false,
          workspace};
}

at::ScalarType wide(Random& random) { return random.coin() ? at::kFloat : at::kDouble; }

/// One dimension, or the last two.
std::vector<int64_t> fft_dims(Random& random, int64_t rank) {
  if (rank > 1 && random.coin()) return {rank - 2, rank - 1};
  return {random.integer(0, rank - 1)};
}

Arguments fft_c2c(Random& random) {
  const at::Tensor real = random.tensor(random.sizes(random.integer(1, 4), 1), wide(random));
  const at::Tensor self = at::complex(real, real);
  return {self, fft_dims(random, self.dim()), random.integer(0, 2), random.coin()};
}

Arguments fft_r2c(Random& random) {
  const at::Tensor self = random.tensor(random.sizes(random.integer(1, 4), 1), wide(random));
  return {self, fft_dims(random, self.dim()), random.integer(0, 2), random.coin()};
}

Arguments fft_c2r(Random& random) {
  const at::Tensor real = random.tensor(random.sizes(random.integer(1, 4), 2), wide(random));
  const at::Tensor self = at::complex(real, real);
  const std::vector<int64_t> dims = fft_dims(random, self.dim());
  const int64_t half = self.size(dims.back());
  return {self, dims, random.integer(0, 2), 2 * (half - 1) + random.integer(0, 1)};
}

const Case kCases[] = {
    {"_fft_c2c", fft_c2c},
    {"_fft_c2r", fft_c2r},
    {"_fft_r2c", fft_r2c},
    {"mkldnn_rnn_layer", rnn_forward},
    {"mkldnn_rnn_layer_backward", rnn_backward},
};

INSTANTIATE_TEST_SUITE_P(All, LibraryRules, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace tandem::ops
