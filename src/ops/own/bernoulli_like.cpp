#include "ops/own/bernoulli_like.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

at::Tensor bernoulli_like(const at::Tensor& x, double p,
                          const std::optional<at::Generator>& generator) {
  return at::empty_like(x).bernoulli_(p, generator);
}

at::Tensor bernoulli_like_meta(const at::Tensor& x, double, const std::optional<at::Generator>&) {
  return at::empty_like(x);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("bernoulli_like(Tensor x, float p, *, Generator? generator=None) -> Tensor",
              {at::Tag::nondeterministic_seeded});
  library.impl("bernoulli_like", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                 TORCH_FN(bernoulli_like)));
  library.impl("bernoulli_like",
               torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(bernoulli_like_meta)));
}

constinit const OwnOp kBernoulliLike{"tandem::bernoulli_like"};

}  // namespace tandem::ops
