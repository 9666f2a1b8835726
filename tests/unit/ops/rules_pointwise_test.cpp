#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

class PointwiseRules : public ::testing::TestWithParam<Case> {};

TEST_P(PointwiseRules, SayWhatEagerDoes) { expect_eager_metadata(GetParam()); }

at::ScalarType any_dtype(Random& random) {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16,     at::kLong,
                                       at::kInt,   at::kBool,   at::kComplexFloat, at::kFloat};
  return kTypes[random.integer(0, 7)];
}

Arguments unary_any(Random& random) {
  return {random.tensor(random.sizes(random.integer(0, 5)), any_dtype(random))};
}

Arguments unary_floating(Random& random) {
  return {random.tensor(random.sizes(random.integer(0, 5)))};
}

/// The second operand broadcasts: some of its dimensions are 1, some are missing.
std::vector<int64_t> broadcastable(Random& random, std::vector<int64_t> sizes) {
  for (int64_t& size : sizes) {
    if (random.integer(0, 3) == 0) size = 1;
  }
  if (!sizes.empty() && random.integer(0, 3) == 0) sizes.erase(sizes.begin());
  return sizes;
}

at::Tensor maybe_number(Random& random, const at::Tensor& tensor) {
  if (random.integer(0, 5) != 0) return tensor;
  at::Tensor number = at::scalar_tensor(2.0, at::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  return number;
}

Arguments binary_any(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 5));
  at::Tensor other = random.tensor(broadcastable(random, sizes), any_dtype(random));
  return {random.tensor(sizes, any_dtype(random)), maybe_number(random, other)};
}

Arguments binary_same(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 5));
  at::ScalarType dtype = random.floating();
  return {random.tensor(sizes, dtype), random.tensor(sizes, dtype)};
}

Arguments binary_integers(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 4));
  return {random.tensor(sizes, at::kLong), random.tensor(broadcastable(random, sizes), at::kInt)};
}

Arguments integers_and_number(Random& random) {
  return {random.tensor(random.sizes(random.integer(0, 4)), at::kLong), 2};
}

template <class... Numbers>
auto then(Arguments (*make)(Random&), Numbers... numbers) {
  return [=](Random& random) {
    Arguments args = make(random);
    (args.emplace_back(numbers), ...);
    return args;
  };
}

Arguments where_arguments(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 5));
  at::Tensor other = random.tensor(broadcastable(random, sizes), any_dtype(random));
  return {random.tensor(broadcastable(random, sizes), at::kBool),
          random.tensor(sizes, any_dtype(random)), maybe_number(random, other)};
}

Arguments prelu_arguments(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(2, 5));
  at::ScalarType dtype = random.floating();
  std::vector<int64_t> weight(sizes.size(), 1);
  if (random.coin()) weight[1] = sizes[1];
  return {random.tensor(sizes, dtype), at::rand(weight).to(dtype)};
}

Arguments prelu_backward_arguments(Random& random) {
  Arguments args = prelu_arguments(random);
  at::Tensor self = args[0].toTensor();
  args.insert(args.begin(), random.tensor(self.sizes().vec(), self.scalar_type()));
  return args;
}

Arguments complex_parts(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 4));
  at::ScalarType dtype = random.coin() ? at::kFloat : at::kDouble;
  return {random.tensor(sizes, dtype), random.tensor(broadcastable(random, sizes), dtype)};
}

Arguments log_sigmoid_gradient(Random& random) {
  Arguments args = binary_same(random);
  at::Tensor self = args[1].toTensor();
  args.emplace_back(std::get<1>(at::log_sigmoid_forward(self)));
  return args;
}

Arguments dropout_gradient(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 5));
  return {random.tensor(sizes), random.tensor(sizes, at::kBool), 2.0};
}

Arguments glu_gradient(Random& random) {
  std::vector<int64_t> sizes = random.sizes(random.integer(1, 5));
  int64_t dim = random.integer(0, static_cast<int64_t>(sizes.size()) - 1);
  at::ScalarType dtype = random.floating();
  at::Tensor grad = random.tensor(sizes, dtype);
  sizes[static_cast<size_t>(dim)] *= 2;
  return {grad, random.tensor(sizes, dtype), dim};
}

const Case kCases[] = {
    {"_conj_physical", unary_any},
    {"__lshift__.Scalar", integers_and_number},
    {"__lshift__.Tensor", binary_integers},
    {"__rshift__.Scalar", integers_and_number},
    {"__rshift__.Tensor", binary_integers},
    {"_add_relu.Scalar", then(unary_floating, 1, 2)},
    {"_add_relu.Tensor", then(binary_same, 2)},
    {"_prelu_kernel", prelu_arguments},
    {"_prelu_kernel_backward", prelu_backward_arguments},
    {"abs", unary_any},
    {"angle", unary_any},
    {"complex", complex_parts},
    {"floor_divide", binary_any},
    {"floor_divide.Scalar", then(unary_any, 2)},
    {"frexp.Tensor", unary_floating},
    {"glu_backward", glu_gradient},
    {"hardswish", unary_floating},
    {"hardswish_backward", binary_same},
    {"hardtanh", then(unary_any, -1, 1)},
    {"hardtanh_backward", then(binary_same, -1.0, 1.0)},
    {"isinf", unary_any},
    {"isnan", unary_any},
    {"log_sigmoid_backward", log_sigmoid_gradient},
    {"log_sigmoid_forward", unary_floating},
    {"logical_and", binary_any},
    {"logical_not", unary_any},
    {"logical_or", binary_any},
    {"logical_xor", binary_any},
    {"logit", then(unary_any, 0.1)},
    {"mish_backward", binary_same},
    {"nan_to_num", unary_any},
    {"native_dropout_backward", dropout_gradient},
    {"polar", complex_parts},
    {"relu", unary_any},
    {"remainder.Scalar_Tensor",
     [](Random& random) {
       return Arguments{3, random.tensor(random.sizes(random.integer(0, 4)), any_dtype(random))};
     }},
    {"rsub.Tensor", then(binary_any, 1)},
    {"silu_backward", binary_same},
    {"where.self", where_arguments},
};

INSTANTIATE_TEST_SUITE_P(All, PointwiseRules, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace tandem::ops
