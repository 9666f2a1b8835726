#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

class LossRules : public ::testing::TestWithParam<Case> {};

TEST_P(LossRules, SayWhatEagerDoes) { expect_eager_metadata(GetParam()); }

at::Tensor gradient(Random& random, const at::Tensor& loss) {
  return random.tensor(loss.sizes().vec(), loss.scalar_type());
}

struct Pair {
  at::Tensor self, target;
};

Pair pair(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 5));
  at::ScalarType dtype = random.floating();
  return {random.tensor(sizes, dtype), random.tensor(sizes, dtype)};
}

Arguments binary_cross_entropy(Random& random) {
  Pair p = pair(random);
  return {p.self, p.target, random.maybe(at::rand(p.self.sizes()).to(p.self.dtype())),
          random.integer(0, 2)};
}

Arguments binary_cross_entropy_backward(Random& random) {
  Pair p = pair(random);
  int64_t reduction = random.integer(0, 2);
  at::Tensor grad = reduction == 0 ? gradient(random, p.self) : gradient(random, p.self.sum());
  return {grad, p.self, p.target, at::Tensor(), reduction};
}

Arguments binary_cross_entropy_with_logits(Random& random) {
  Pair p = pair(random);
  at::Tensor weight = random.maybe(at::rand(p.self.sizes()).to(p.self.dtype()));
  return {p.self, p.target, weight, c10::IValue(), random.integer(0, 2)};
}

Arguments huber_loss(Random& random) {
  Pair p = pair(random);
  return {p.self, p.target, random.integer(0, 2), 1.0};
}

template <bool has_threshold>
Arguments loss_backward(Random& random) {
  Pair p = pair(random);
  int64_t reduction = random.integer(0, 2);
  at::Tensor grad = reduction == 0 ? gradient(random, p.self) : gradient(random, p.self.sum());
  Arguments args{grad, p.self, p.target, reduction};
  if (has_threshold) args.emplace_back(1.0);
  return args;
}

struct Classes {
  at::Tensor self, target, weight;
};

Classes classes2d(Random& random) {
  std::vector<int64_t> sizes = random.sizes(4, 1);
  at::ScalarType dtype = random.floating();
  Classes c;
  c.self = random.tensor(sizes, dtype);
  c.target = random.indices({sizes[0], sizes[2], sizes[3]}, sizes[1]);
  c.weight = random.maybe(at::rand({sizes[1]}).to(dtype));
  return c;
}

Arguments nll_loss2d(Random& random) {
  Classes c = classes2d(random);
  return {c.self, c.target, c.weight, random.integer(0, 2), -100};
}

Arguments nll_loss2d_backward(Random& random) {
  Classes c = classes2d(random);
  int64_t reduction = random.integer(0, 2);
  auto [output, total] = at::nll_loss2d_forward(c.self, c.target, c.weight, reduction, -100);
  return {gradient(random, output), c.self, c.target, c.weight, reduction, -100, total};
}

Classes classes1d(Random& random) {
  int64_t count = random.integer(1, 4), kinds = random.integer(1, 4);
  at::ScalarType dtype = random.coin() ? at::kFloat : at::kDouble;
  if (random.integer(0, 3) == 0)
    return {random.tensor({kinds}, dtype), random.indices({}, kinds), {}};
  return {random.tensor({count, kinds}, dtype), random.indices({count}, kinds), {}};
}

Arguments multi_margin(Random& random) {
  Classes c = classes1d(random);
  return {c.self, c.target, 1, 1.0, c10::IValue(), random.integer(0, 2)};
}

Arguments multi_margin_backward(Random& random) {
  Classes c = classes1d(random);
  int64_t reduction = random.integer(0, 2);
  at::Tensor output = at::multi_margin_loss(c.self, c.target, 1, 1.0, {}, reduction);
  return {gradient(random, output), c.self, c.target, 1, 1.0, c10::IValue(), reduction};
}

Classes labels(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(1, 2), 1);
  at::ScalarType dtype = random.coin() ? at::kFloat : at::kDouble;
  return {random.tensor(sizes, dtype), random.indices(sizes, sizes.back()), {}};
}

Arguments multilabel_margin(Random& random) {
  Classes c = labels(random);
  return {c.self, c.target, random.integer(0, 2)};
}

Arguments multilabel_margin_backward(Random& random) {
  Classes c = labels(random);
  int64_t reduction = random.integer(0, 2);
  auto [output, is_target] = at::multilabel_margin_loss_forward(c.self, c.target, reduction);
  return {gradient(random, output), c.self, c.target, reduction, is_target};
}

struct CtcLoss {
  at::Tensor log_probs, targets, input_lengths, target_lengths;
};

CtcLoss ctc_loss(Random& random) {
  int64_t steps = random.integer(5, 7), batch = random.integer(1, 3);
  at::Tensor scores = random.tensor({steps, batch, 4}, at::kFloat);
  return {scores.log_softmax(2), random.indices({batch, 2}, 3) + 1,
          at::full({batch}, steps, at::kLong), at::full({batch}, 2, at::kLong)};
}

Arguments ctc_loss_backward(Random& random) {
  CtcLoss c = ctc_loss(random);
  std::vector<int64_t> inputs(c.targets.size(0), c.log_probs.size(0)),
      targets(c.targets.size(0), 2);
  auto [loss, log_alpha] = at::_ctc_loss(c.log_probs, c.targets, inputs, targets);
  return {at::rand_like(loss), c.log_probs, c.targets, inputs, targets, loss, log_alpha, 0};
}

Arguments ctc_loss_backward_of_tensors(Random& random) {
  CtcLoss c = ctc_loss(random);
  auto [loss, log_alpha] = at::_ctc_loss(c.log_probs, c.targets, c.input_lengths, c.target_lengths);
  return {at::rand_like(loss), c.log_probs, c.targets, c.input_lengths,
          c.target_lengths,    loss,        log_alpha, 0};
}

// ---- pools and grids ----

at::Tensor volume(Random& random, at::ScalarType dtype) {
  std::vector<int64_t> sizes = random.sizes(2, 1);
  for (int i = 0; i < 3; ++i) sizes.push_back(random.integer(4, 6));
  if (random.integer(0, 3) == 0) sizes.erase(sizes.begin());
  return random.tensor(sizes, dtype);
}

std::vector<int64_t> three(Random& random, int64_t low, int64_t high) {
  return {random.integer(low, high), random.integer(low, high), random.integer(low, high)};
}

at::Tensor channels_last_without_batch(Random& random) {
  at::Tensor self = random.tensor({1, random.integer(1, 3), 5, 6, 5});
  return self.contiguous(at::MemoryFormat::ChannelsLast3d).squeeze(0);
}

Arguments max_pool3d(Random& random) {
  bool no_batch = random.integer(0, 4) == 0;
  return {no_batch ? channels_last_without_batch(random) : volume(random, random.floating()),
          three(random, 2, 3),
          three(random, 1, 2),
          three(random, 0, 1),
          three(random, 1, 1),
          random.coin()};
}

Arguments max_pool3d_backward(Random& random) {
  bool no_batch = random.integer(0, 4) == 0;
  at::Tensor self =
      no_batch ? channels_last_without_batch(random) : volume(random, random.floating());
  if (self.dim() == 4 && !no_batch) self = self.contiguous();
  std::vector<int64_t> kernel{2, 2, 2}, zero{0, 0, 0}, one{1, 1, 1};
  auto [output, indices] = at::max_pool3d_with_indices(self, kernel, kernel, zero, one, false);
  at::Tensor grad = no_batch && random.coin() ? output : gradient(random, output);
  return {grad, self, kernel, kernel, zero, one, false, indices};
}

Arguments adaptive_avg_pool3d(Random& random) {
  return {volume(random, random.floating()), three(random, 1, 4)};
}

Arguments adaptive_avg_pool3d_backward(Random& random) {
  at::Tensor self = volume(random, random.floating());
  return {gradient(random, at::_adaptive_avg_pool3d(self, {2, 3, 2})), self};
}

Arguments adaptive_avg_pool2d_backward(Random& random) {
  at::Tensor self = random.tensor({random.integer(1, 2), random.integer(1, 3), 5, 4});
  return {gradient(random, at::_adaptive_avg_pool2d(self, {2, 3})), self};
}

Arguments max_unpool2d(Random& random) {
  at::Tensor self = random.tensor({random.integer(1, 2), random.integer(1, 3), 4, 6}, at::kFloat);
  auto [output, indices] = at::max_pool2d_with_indices(self, {2, 2}, {2, 2});
  return {output, indices, std::vector<int64_t>{4, 6}};
}

Arguments max_unpool3d(Random& random) {
  at::Tensor self =
      random.tensor({random.integer(1, 2), random.integer(1, 3), 4, 6, 4}, at::kFloat);
  auto [output, indices] = at::max_pool3d_with_indices(self, {2, 2, 2}, {2, 2, 2});
  std::vector<int64_t> two{2, 2, 2}, zero{0, 0, 0};
  return {output, indices, std::vector<int64_t>{4, 6, 4}, two, zero};
}

template <int spatial>
Arguments grid_sampler(Random& random) {
  at::ScalarType dtype = random.coin() ? at::kFloat : at::kDouble;
  std::vector<int64_t> input = random.sizes(spatial + 2, 1), grid{input[0]};
  for (int i = 0; i < spatial; ++i) grid.push_back(random.integer(1, 4));
  grid.push_back(spatial);
  return {random.tensor(input, dtype), random.tensor(grid, dtype), 0, random.integer(0, 2),
          random.coin()};
}

template <int spatial>
Arguments grid_sampler_backward(Random& random) {
  Arguments args = grid_sampler<spatial>(random);
  at::Tensor input = args[0].toTensor(), grid = args[1].toTensor();
  std::vector<int64_t> sizes{input.size(0), input.size(1)};
  for (int i = 0; i < spatial; ++i) sizes.push_back(grid.size(i + 1));
  args.insert(args.begin(), random.tensor(sizes, input.scalar_type()));
  args.emplace_back(c10::List<bool>({random.coin(), true}));
  return args;
}

Arguments fractional_max_pool3d_backward(Random& random) {
  at::Tensor self =
      random.tensor({random.integer(1, 2), random.integer(1, 3), 5, 6, 5}, at::kFloat);
  at::Tensor samples = at::rand({self.size(0), self.size(1), 3});
  std::vector<int64_t> kernel{2, 2, 2}, sizes{2, 3, 2};
  auto [output, indices] = at::fractional_max_pool3d(self, kernel, sizes, samples);
  return {at::rand_like(output), self, kernel, sizes, indices};
}

// ---- random numbers, optimizers, factories ----

Arguments one_tensor(Random& random) {
  return {
      random.tensor(random.sizes(random.integer(0, 4)), random.coin() ? at::kFloat : at::kDouble)};
}

Arguments dropout(Random& random) {
  return {random.tensor(random.sizes(random.integer(0, 4))), 0.5, random.coin()};
}

Arguments rrelu(Random& random) {
  at::Tensor self = random.tensor(random.sizes(random.integer(0, 4)));
  return {self, at::empty_like(self), 0.1, 0.3, random.coin()};
}

using List = c10::List<at::Tensor>;

List parameters(Random& random) {
  List list;
  for (int i = 0; i < 2; ++i) {
    at::Tensor parameter = at::rand(random.sizes(2, 1));
    list.push_back(random.coin() ? parameter : parameter.t().contiguous().t());
  }
  return list;
}

List like(const List& tensors) {
  List list;
  for (const at::Tensor& tensor : tensors) list.push_back(at::rand_like(tensor));
  return list;
}

List steps() { return List({at::ones({}), at::ones({})}); }

Arguments adam(Random& random) {
  List p = parameters(random);
  return {p, like(p), like(p), like(p), List(), steps(), 0.1, 0.9, 0.99, 0.0, 1e-8, false, false};
}

Arguments adagrad(Random& random) {
  List p = parameters(random);
  return {p, like(p), like(p), steps(), 0.1, 0.0, 0.0, 1e-8, false};
}

Arguments sgd(Random& random) {
  List p = parameters(random);
  return {p, like(p), like(p), 0.0, 0.9, 0.1, 0.0, false, false, false};
}

const Case kCases[] = {
    {"_adaptive_avg_pool2d_backward", adaptive_avg_pool2d_backward},
    {"_adaptive_avg_pool3d", adaptive_avg_pool3d},
    {"_adaptive_avg_pool3d_backward", adaptive_avg_pool3d_backward},
    {"_ctc_loss_backward", ctc_loss_backward},
    {"_ctc_loss_backward.Tensor", ctc_loss_backward_of_tensors},
    {"_fused_adagrad", adagrad},
    {"_fused_adam", adam},
    {"_fused_adamw", adam},
    {"_fused_sgd", sgd},
    {"_sample_dirichlet", one_tensor},
    {"_standard_gamma", one_tensor},
    {"binary_cross_entropy", binary_cross_entropy},
    {"binary_cross_entropy_backward", binary_cross_entropy_backward},
    {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
    {"binomial",
     [](Random& random) {
       at::Tensor count = one_tensor(random)[0].toTensor();
       return Arguments{count, at::full_like(count, 0.5)};
     }},
    {"fractional_max_pool3d_backward", fractional_max_pool3d_backward},
    {"grid_sampler_2d", grid_sampler<2>},
    {"grid_sampler_2d_backward", grid_sampler_backward<2>},
    {"grid_sampler_3d", grid_sampler<3>},
    {"grid_sampler_3d_backward", grid_sampler_backward<3>},
    {"huber_loss", huber_loss},
    {"huber_loss_backward", loss_backward<true>},
    {"max_pool3d_with_indices", max_pool3d},
    {"max_pool3d_with_indices_backward", max_pool3d_backward},
    {"max_unpool2d", max_unpool2d},
    {"max_unpool3d", max_unpool3d},
    {"mse_loss_backward", loss_backward<false>},
    {"multi_margin_loss", multi_margin},
    {"multi_margin_loss_backward", multi_margin_backward},
    {"multilabel_margin_loss_backward", multilabel_margin_backward},
    {"multilabel_margin_loss_forward", multilabel_margin},
    {"multinomial",
     [](Random& random) { return Arguments{at::rand({random.integer(1, 3), 5}), 2}; }},
    {"native_dropout", dropout},
    {"nll_loss2d_backward", nll_loss2d_backward},
    {"nll_loss2d_forward", nll_loss2d},
    {"poisson", one_tensor},
    {"randperm", [](Random& random) { return Arguments{random.integer(0, 6)}; }},
    {"randperm.generator",
     [](Random& random) {
       return Arguments{random.integer(0, 6),
                        at::make_generator<at::CPUGeneratorImpl>(random.integer(0, 9))};
     }},
    {"rrelu_with_noise", rrelu},
    {"smooth_l1_loss_backward", loss_backward<true>},
    {"tril_indices",
     [](Random& random) {
       return Arguments{random.integer(0, 5), random.integer(0, 5), random.integer(-3, 3)};
     }},
    {"triu_indices",
     [](Random& random) {
       return Arguments{random.integer(0, 5), random.integer(0, 5), random.integer(-3, 3)};
     }},
};

INSTANTIATE_TEST_SUITE_P(All, LossRules, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace tandem::ops
