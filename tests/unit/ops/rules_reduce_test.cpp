#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ops {
namespace {

class ReduceRules : public ::testing::TestWithParam<Case> {};

TEST_P(ReduceRules, SayWhatEagerDoes) { expect_eager_metadata(GetParam()); }

at::Tensor any_tensor(Random& random, int64_t low = 0) {
  return random.tensor(random.sizes(random.integer(0, 5), low));
}

at::Tensor any_number(Random& random) {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kBool};
  return random.tensor(random.sizes(random.integer(0, 4), 1), kTypes[random.integer(0, 4)]);
}

int64_t any_dim(Random& random, const at::Tensor& tensor) {
  return tensor.dim() == 0 ? 0 : random.integer(-tensor.dim(), tensor.dim() - 1);
}

/// None, one or two different dimensions.
std::vector<int64_t> any_dims(Random& random, const at::Tensor& tensor) {
  std::vector<int64_t> dims;
  if (tensor.dim() > 0 && random.coin()) dims.push_back(0);
  if (tensor.dim() > 1 && random.coin()) dims.push_back(-1);
  return dims;
}

Arguments whole(Random& random) { return {any_number(random)}; }
Arguments whole_floating(Random& random) { return {any_tensor(random, 1)}; }

Arguments two_vectors(Random& random) {
  int64_t size = random.integer(0, 4);
  at::ScalarType dtype = random.floating();
  return {random.tensor({size}, dtype), random.tensor({size}, dtype)};
}

Arguments variance(Random& random) {
  at::Tensor self = any_tensor(random);
  c10::IValue dims;
  if (random.integer(0, 3) != 0) dims = any_dims(random, self);
  return {self, dims, 1, random.coin()};
}

Arguments over_dims(Random& random) {
  at::Tensor self = any_tensor(random, 1);
  return {self, any_dims(random, self), random.coin()};
}

Arguments nansum(Random& random) {
  at::Tensor self = any_number(random);
  return {self, any_dims(random, self), random.coin(),
          random.coin() ? c10::IValue() : c10::IValue(at::kDouble)};
}

Arguments over_dim(Random& random) {
  at::Tensor self = any_tensor(random, 1);
  return {self, any_dim(random, self), random.coin()};
}

Arguments along_dim(Random& random) {
  at::Tensor self = any_tensor(random);
  return {self, any_dim(random, self)};
}

Arguments kthvalue(Random& random) {
  at::Tensor self = any_tensor(random, 1);
  return {self, 1, any_dim(random, self), random.coin()};
}

// ---- linear algebra ----

at::ScalarType precise(Random& random) { return random.coin() ? at::kFloat : at::kDouble; }

std::vector<int64_t> batched(Random& random, int64_t rows, int64_t columns) {
  std::vector<int64_t> sizes = random.sizes(random.integer(0, 2), 1);
  sizes.push_back(rows);
  sizes.push_back(columns);
  return sizes;
}

at::Tensor positive_definite(Random& random) {
  int64_t n = random.integer(1, 4);
  at::Tensor a = random.tensor(batched(random, n, n), precise(random));
  return at::matmul(a, a.mT()) + at::eye(n, a.options());
}

Arguments cholesky(Random& random) { return {positive_definite(random)}; }

Arguments cholesky_solve(Random& random) {
  at::Tensor a = positive_definite(random);
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes.back() = random.integer(1, 3);
  return {random.tensor(sizes, a.scalar_type()), at::linalg_cholesky(a)};
}

Arguments solve_triangular(Random& random) {
  at::Tensor a = positive_definite(random);
  bool left = random.coin();
  std::vector<int64_t> sizes = a.sizes().vec();
  sizes[sizes.size() - (left ? 1 : 2)] = random.integer(1, 3);
  return {a, random.tensor(sizes, a.scalar_type()), random.coin(), left, false};
}

Arguments square(Random& random) {
  int64_t n = random.integer(1, 4);
  return {random.tensor(batched(random, n, n), precise(random))};
}

Arguments rectangle(Random& random) {
  return {
      random.tensor(batched(random, random.integer(1, 4), random.integer(1, 4)), precise(random))};
}

Arguments householder(Random& random) {
  at::Tensor a = random.tensor(batched(random, 4, random.integer(1, 4)), precise(random));
  auto [reflectors, tau] = at::geqrf(a);
  return {reflectors, tau};
}

Arguments cdist(Random& random) {
  int64_t width = random.integer(1, 4);
  at::ScalarType dtype = precise(random);
  return {random.tensor(batched(random, random.integer(1, 4), width), dtype).contiguous(),
          random.tensor({random.integer(1, 4), width}, dtype).contiguous(), 2.0, c10::IValue()};
}

Arguments addbmm(Random& random) {
  int64_t batch = random.integer(1, 3), n = random.integer(1, 4), m = random.integer(1, 4),
          p = random.integer(1, 4);
  at::ScalarType dtype = precise(random);
  return {
      random.tensor(random.coin() ? std::vector<int64_t>{n, p} : std::vector<int64_t>{p}, dtype),
      random.tensor({batch, n, m}, dtype), random.tensor({batch, m, p}, dtype)};
}

const Case kCases[] = {
    {"_cdist_forward", cdist},
    {"_cholesky_solve_helper",
     [](Random& random) {
       Arguments args = cholesky_solve(random);
       args.emplace_back(false);
       return args;
     }},
    {"_logcumsumexp", along_dim},
    {"_pdist_backward",
     [](Random& random) {
       at::Tensor self = random.tensor({random.integer(2, 5), 3}, at::kFloat).contiguous();
       at::Tensor distances = at::_pdist_forward(self, 2.0);
       return Arguments{at::rand_like(distances), self, 2.0, distances};
     }},
    {"_pdist_forward",
     [](Random& random) { return Arguments{at::rand({random.integer(0, 5), 3}), 2.0}; }},
    {"addbmm", addbmm},
    {"cholesky", cholesky},
    {"cholesky_inverse", cholesky},
    {"cholesky_solve", cholesky_solve},
    {"count_nonzero", [](Random& random) { return Arguments{any_number(random)}; }},
    {"count_nonzero.dim_IntList",
     [](Random& random) {
       at::Tensor self = any_number(random);
       return Arguments{self, any_dims(random, self)};
     }},
    {"cummax", along_dim},
    {"cummin", along_dim},
    {"dot", two_vectors},
    {"geqrf", rectangle},
    {"kthvalue", kthvalue},
    {"linalg_eig", square},
    {"linalg_householder_product", householder},
    {"linalg_matrix_exp", square},
    {"linalg_solve_triangular", solve_triangular},
    {"logcumsumexp", along_dim},
    {"logsumexp", over_dims},
    {"max", whole},
    {"median", whole_floating},
    {"median.dim", over_dim},
    {"min", whole},
    {"mode", over_dim},
    {"nanmedian", whole_floating},
    {"nanmedian.dim", over_dim},
    {"nansum", nansum},
    {"isin.Scalar_Tensor",
     [](Random& random) {
       return Arguments{2, random.tensor(random.sizes(random.integer(0, 3)))};
     }},
    {"prod", whole},
    {"std.correction", variance},
    {"std_mean.correction", variance},
    {"trace",
     [](Random& random) {
       return Arguments{random.tensor({3, 2}, random.coin() ? at::kInt : at::kFloat)};
     }},
    {"var.correction", variance},
    {"var_mean.correction", variance},
    {"vdot", two_vectors},
};

INSTANTIATE_TEST_SUITE_P(All, ReduceRules, ::testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace tandem::ops
