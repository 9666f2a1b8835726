#include "cases.h"

namespace tandem::test {
namespace {

Arguments one(Draw& draw) { return {draw.normal(draw.sizes())}; }

/// A gradient and a tensor of its sizes.
Arguments two(Draw& draw) {
  const at::Tensor x = draw.normal(draw.sizes());
  return {draw.like(x), x};
}

/// `arguments`, then these numbers.
auto with(Arguments (*arguments)(Draw&), std::vector<c10::IValue> numbers) {
  return [=](Draw& draw) {
    Arguments args = arguments(draw);
    args.insert(args.end(), numbers.begin(), numbers.end());
    return args;
  };
}

/// A gradient and a result in (0, 1).
Arguments gradient_and_share(Draw& draw) {
  const std::vector<int64_t> sizes = draw.sizes();
  return {draw.normal(sizes), draw.uniform(sizes)};
}

/// An even size in the dimension that is halved.
Arguments halved(Draw& draw) { return {draw.normal({3, 4, 6}), draw.integer(0, 1) + 1}; }

Arguments halved_backward(Draw& draw) {
  const int64_t dim = draw.integer(1, 2);
  return {draw.normal(dim == 1 ? std::vector<int64_t>{3, 2, 6} : std::vector<int64_t>{3, 4, 3}),
          draw.normal({3, 4, 6}), dim};
}

Arguments log_sigmoid_backward(Draw& draw) {
  const at::Tensor x = draw.normal(draw.sizes());
  return {draw.like(x), x, std::get<1>(at::log_sigmoid_forward(x))};
}

Arguments prelu(Draw& draw) {
  const at::Tensor x = draw.normal({3, 4, 5});
  return {x, draw.coin() ? draw.normal({1, 4, 1}) : draw.normal({1, 1, 1})};
}

Arguments prelu_backward(Draw& draw) {
  Arguments args = prelu(draw);
  args.insert(args.begin(), draw.normal({3, 4, 5}));
  return args;
}

}  // namespace

std::vector<DecompositionCase> activation_cases() {
  return {
      {"elu", with(one, {1.5, 1.0, 0.7})},
      {"elu", with(one, {1.6732632423543772, 1.0507009873554805, 1})},
      {"elu_backward",
       [](Draw& draw) -> Arguments {
         const at::Tensor x = draw.normal(draw.sizes());
         return {draw.like(x), 1.5, 1.1, 0.7, draw.coin(), x};
       }},
      {"gelu", with(one, {"none"})},
      {"gelu", with(one, {"tanh"})},
      {"gelu_backward", with(two, {"none"})},
      {"gelu_backward", with(two, {"tanh"})},
      {"glu", halved},
      {"glu_backward", halved_backward},
      {"hardshrink", with(one, {0.5})},
      {"hardshrink_backward", with(two, {0.5})},
      {"hardsigmoid", one},
      {"hardsigmoid_backward", two},
      {"hardswish", one},
      {"hardswish_backward", two},
      {"hardtanh", with(one, {-3.0, 0.5})},
      {"hardtanh_backward", with(two, {-3.0, 0.5})},
      {"leaky_relu", with(one, {0.1})},
      {"leaky_relu_backward", with(two, {0.1, false})},
      {"log_sigmoid_backward", log_sigmoid_backward},
      {"log_sigmoid_forward", one},
      {"mish", one},
      {"mish_backward", two},
      {"_prelu_kernel", prelu},
      {"_prelu_kernel_backward", prelu_backward},
      {"relu", one},
      {"sigmoid_backward", gradient_and_share},
      {"silu", one},
      {"silu_backward", two},
      {"softplus", with(one, {2, 3})},
      {"softplus_backward", with(two, {2, 3})},
      {"softshrink", with(one, {0.5})},
      {"softshrink_backward", with(two, {0.5})},
      {"tanh_backward", gradient_and_share},
      {"threshold", with(one, {0.5, 0.25})},
      {"threshold_backward", with(two, {0})},
  };
}

}  // namespace tandem::test
