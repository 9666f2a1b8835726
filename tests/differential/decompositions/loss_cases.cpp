#include "cases.h"

#include <ATen/ATen.h>

namespace tandem::test {
namespace {

struct Pair {
  at::Tensor input, target;
};

Pair pair(Draw& draw) {
  const std::vector<int64_t> sizes = draw.sizes();
  return {draw.normal(sizes), draw.normal(sizes)};
}

/// Of the result of a loss with this reduction.
at::Tensor gradient(Draw& draw, const at::Tensor& input, int64_t reduction) {
  return reduction == 0 ? draw.like(input) : draw.normal({});
}

template <int64_t reduction>
Arguments loss(Draw& draw) {
  const auto [input, target] = pair(draw);
  return {input, target, reduction};
}

template <int64_t reduction>
Arguments loss_backward(Draw& draw) {
  const auto [input, target] = pair(draw);
  return {gradient(draw, input, reduction), input, target, reduction};
}

/// Of an input that was broadcast to its target: eager divides a mean by the input's size.
Arguments broadcast_backward(Draw& draw) {
  return {draw.normal({}), draw.normal({1, 5}), draw.normal({4, 5}), int64_t{1}};
}

auto with(Arguments (*arguments)(Draw&), double number) {
  return [=](Draw& draw) {
    Arguments args = arguments(draw);
    args.emplace_back(number);
    return args;
  };
}

/// Probabilities, and targets between 0 and 1.
Arguments probabilities_backward(Draw& draw) {
  const std::vector<int64_t> sizes = draw.sizes();
  const int64_t reduction = draw.integer(0, 2);
  const at::Tensor input = draw.uniform(sizes, 0.01, 0.99), target = draw.uniform(sizes);
  return {gradient(draw, input, reduction), input, target, draw.maybe(draw.uniform(sizes)),
          reduction};
}

Arguments logits(Draw& draw) {
  const std::vector<int64_t> sizes{4, 5};
  return {draw.normal(sizes), draw.uniform(sizes), draw.maybe(draw.uniform(sizes)),
          draw.maybe(draw.uniform({5}, 0.5, 2)), draw.integer(0, 2)};
}

constexpr int64_t kClasses = 5;

struct Classes {
  at::Tensor input, target, weight;
  int64_t reduction, ignored;
};

Classes classes(Draw& draw, std::vector<int64_t> sizes, std::vector<int64_t> target_sizes) {
  Classes made;
  made.input = draw.normal(std::move(sizes));
  made.ignored = draw.coin() ? 1 : -100;
  made.target = draw.random.indices(std::move(target_sizes), kClasses);
  made.weight = draw.maybe(draw.uniform({kClasses}, 0.5, 2).contiguous());
  made.reduction = draw.integer(0, 2);
  return made;
}

Classes rows(Draw& draw) {
  // A row without a class: only the sum tells what eager makes of an ignored one.
  if (draw.integer(0, 4) == 0) {
    Classes single = classes(draw, {kClasses}, {});
    single.ignored = -100;
    return single;
  }
  Classes made = classes(draw, {6, kClasses}, {6});
  made.target[0] = 2;  // not every row is ignored
  return made;
}

// Eager takes contiguous pictures only.
Classes pictures(Draw& draw) {
  Classes made = classes(draw, {2, kClasses, 3, 4}, {2, 3, 4});
  made.input = made.input.contiguous();
  return made;
}

Arguments nll(const Classes& c) { return {c.input, c.target, c.weight, c.reduction, c.ignored}; }

Arguments nll_backward(Draw& draw, const Classes& c, bool in_pictures) {
  const auto [result, total_weight] =
      in_pictures ? at::nll_loss2d_forward(c.input, c.target, c.weight, c.reduction, c.ignored)
                  : at::nll_loss_forward(c.input, c.target, c.weight, c.reduction, c.ignored);
  return {draw.normal(result.sizes().vec()),
          c.input,
          c.target,
          c.weight,
          c.reduction,
          c.ignored,
          c.reduction == 0 ? at::zeros({}, c.input.options()) : total_weight};
}

}  // namespace

std::vector<DecompositionCase> loss_cases() {
  return {
      {"binary_cross_entropy_backward", probabilities_backward},
      {"binary_cross_entropy_with_logits", logits},
      {"huber_loss", with(loss<0>, 0.5)},
      {"huber_loss", with(loss<1>, 0.5)},
      {"huber_loss", with(loss<2>, 2.0)},
      {"huber_loss_backward", with(loss_backward<0>, 0.5)},
      {"huber_loss_backward", with(loss_backward<1>, 0.5)},
      {"huber_loss_backward", with(broadcast_backward, 0.5)},
      {"mse_loss", loss<0>},
      {"mse_loss", loss<1>},
      {"mse_loss", loss<2>},
      {"mse_loss_backward", loss_backward<0>},
      {"mse_loss_backward", loss_backward<1>},
      {"mse_loss_backward", loss_backward<2>},
      {"mse_loss_backward", broadcast_backward},
      {"nll_loss2d_backward", [](Draw& d) { return nll_backward(d, pictures(d), true); }},
      {"nll_loss2d_forward", [](Draw& d) { return nll(pictures(d)); }, true, {1}},
      {"nll_loss_backward", [](Draw& d) { return nll_backward(d, rows(d), false); }},
      {"nll_loss_forward", [](Draw& d) { return nll(rows(d)); }},
      {"smooth_l1_loss", with(loss<0>, 0.5)},
      {"smooth_l1_loss", with(loss<1>, 0.5)},
      {"smooth_l1_loss", with(loss<2>, 0.0)},
      {"smooth_l1_loss_backward", with(loss_backward<0>, 0.5)},
      {"smooth_l1_loss_backward", with(loss_backward<1>, 0.5)},
      {"smooth_l1_loss_backward", with(broadcast_backward, 0.5)},
  };
}

}  // namespace tandem::test
