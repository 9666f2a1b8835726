#include "ops/metadata/kernel_answers.h"
#include "ops/rules/rules.h"

namespace tandem::ops::rules {
namespace {

bool is_matrix(const TensorType& type) { return type.rank() >= 2; }

bool is_square(const TensorType& type) {
  return is_matrix(type) && type.sizes.back() == type.sizes[type.sizes.size() - 2];
}

Sizes batch_of(const TensorType& type) { return {type.sizes.begin(), type.sizes.end() - 2}; }

/// nullopt if the batches do not broadcast.
std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b) {
  Sizes result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    ir::Size left = i < a.size() ? a[a.size() - 1 - i] : ir::Size(1);
    ir::Size right = i < b.size() ? b[b.size() - 1 - i] : ir::Size(1);
    if (!(left == right || left == ir::Size(1) || right == ir::Size(1))) return std::nullopt;
    result[result.size() - 1 - i] = left == ir::Size(1) ? right : left;
  }
  return result;
}

}  // namespace

Results column_major_like_first(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (!is_matrix(*self)) return std::nullopt;
  return answer(column_major(*self, self->sizes));
}

Results solve_triangular(const MetaCall& call) {
  Args args(call);
  const TensorType *a = args.tensor("self"), *b = args.tensor("B");
  if (!is_square(*a) || !is_matrix(*b) || a->dtype != b->dtype) return std::nullopt;
  size_t shared = b->sizes.size() - (args.flag("left") ? 2 : 1);
  auto sizes = broadcast(batch_of(*a), batch_of(*b));
  if (!sizes || !(b->sizes[shared] == a->sizes.back())) return std::nullopt;
  sizes->insert(sizes->end(), b->sizes.end() - 2, b->sizes.end());
  return answer(column_major(*b, std::move(*sizes)));
}

Results cdist_forward(const MetaCall& call) {
  Args args(call);
  const TensorType *x1 = args.tensor("x1"), *x2 = args.tensor("x2");
  bool fits = is_matrix(*x1) && is_matrix(*x2) && x1->sizes.back() == x2->sizes.back() &&
              x1->dtype == x2->dtype;
  if (!fits) return std::nullopt;
  auto sizes = broadcast(batch_of(*x1), batch_of(*x2));
  if (!sizes) return std::nullopt;
  sizes->push_back(x1->sizes[x1->sizes.size() - 2]);
  sizes->push_back(x2->sizes[x2->sizes.size() - 2]);
  return answer(contiguous(*x1, std::move(*sizes)));
}

Results pdist_forward(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (self->rank() != 2) return std::nullopt;
  const ir::Size& n = self->sizes[0];
  return answer(contiguous(*self, {floordiv(n * (n - 1), 2)}));
}

Results addbmm(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *a = args.tensor("batch1"),
                   *b = args.tensor("batch2");
  bool fits = a->rank() == 3 && b->rank() == 3 && a->sizes[0] == b->sizes[0] &&
              a->sizes[2] == b->sizes[1] && self->dtype == a->dtype && a->dtype == b->dtype;
  if (!fits || !broadcast(self->sizes, {a->sizes[1], b->sizes[2]})) return std::nullopt;
  return answer(contiguous(*self, {a->sizes[1], b->sizes[2]}));
}

/// libtorch's Meta kernel is made of other ops, and raises what those raise.
Results addr(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *a = args.tensor("vec1"), *b = args.tensor("vec2");
  if (a->rank() != 1 || b->rank() != 1) return try_on_zeros(call);
  const Sizes sizes = {a->sizes[0], b->sizes[0]};
  if (broadcast(self->sizes, sizes) != sizes) return try_on_zeros(call);
  return std::nullopt;
}

Results eig(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (!is_square(*self)) return std::nullopt;
  bool wide = self->dtype == ScalarType::Double || self->dtype == ScalarType::ComplexDouble;
  ScalarType dtype = wide ? ScalarType::ComplexDouble : ScalarType::ComplexFloat;
  Sizes values{self->sizes.begin(), self->sizes.end() - 1};
  return answer(contiguous(*self, std::move(values), dtype),
                with_dtype(column_major(*self, self->sizes), dtype));
}

Results geqrf(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (!is_matrix(*self)) return std::nullopt;
  Sizes tau = batch_of(*self);
  tau.push_back(min(self->sizes[self->sizes.size() - 2], self->sizes.back()));
  return answer(column_major(*self, self->sizes), contiguous(*self, std::move(tau)));
}

Results matrix_exp(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  if (!is_square(*self.type)) return std::nullopt;
  // Of one element: eager calls exp(), a pointwise op.
  if (self.type->sizes.back() == ir::Size(1)) {
    return answer(iterated(args, {&self}, self.type->dtype));
  }
  return answer(like_contiguous(*self.type));
}

}  // namespace tandem::ops::rules
