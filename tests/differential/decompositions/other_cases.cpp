#include "cases.h"

#include <ATen/ATen.h>

namespace tandem::test {
namespace {

Arguments three(Draw& draw) {
  const at::Tensor x = draw.normal({3, 4});
  return {x, draw.coin() ? draw.normal({3, 4}) : draw.normal({4}),
          draw.coin() ? draw.uniform({3, 4}, 0.5, 2) : draw.uniform({3, 1}, 0.5, 2),
          draw.coin() ? 1.0 : -0.3};
}

/// One, or another number: they are different code.
double factor(Draw& draw) { return draw.coin() ? 1.0 : draw.coin() ? 0.0 : 0.7; }

Arguments addmm(Draw& draw) {
  const at::Tensor x = draw.coin() ? draw.normal({7}) : draw.normal({3, 7});
  return {x, draw.normal({3, 6}), draw.normal({6, 7}), factor(draw), draw.coin() ? 1.0 : 0.5};
}

Arguments baddbmm(Draw& draw) {
  const at::Tensor x = draw.coin() ? draw.normal({7}) : draw.normal({2, 3, 7});
  return {x, draw.normal({2, 3, 6}), draw.normal({2, 6, 7}), factor(draw), draw.coin() ? 1.0 : 0.5};
}

Arguments dropout(Draw& draw) {
  const double p = draw.coin() ? 0.3 : 1.0;
  const c10::IValue train = draw.coin() ? c10::IValue(draw.coin()) : c10::IValue();
  return {draw.normal(draw.sizes()), p, train};
}

Arguments dropout_backward(Draw& draw) {
  const at::Tensor x = draw.normal(draw.sizes());
  return {x, draw.like(x) > 0, 1.0 / 0.7};
}

}  // namespace

std::vector<DecompositionCase> other_cases() {
  return {
      {"addcdiv", three},
      {"addcmul", three},
      {"addmm", addmm},
      {"baddbmm", baddbmm},
      {"native_dropout", dropout},
      {"native_dropout_backward", dropout_backward},
  };
}

}  // namespace tandem::test
