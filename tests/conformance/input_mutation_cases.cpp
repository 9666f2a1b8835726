#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

namespace tandem::conformance {
namespace {

void input_mutation_simple(Session& session) {
  const auto program = [](Tensors& a) -> Tensors {
    a[0].mul_(2);
    return {a[0] * 3};
  };
  session.judge(non_leaves({{3, 3}}), program);
  session.judge(plain({{3, 3}}), program);
}

/// The same write outside autograd: legal for a leaf, too.
void leaf_mutation_under_no_grad(Session& session) {
  const auto program = [](Tensors& a) -> Tensors {
    {
      const torch::NoGradGuard no_grad;
      a[0].mul_(2);
    }
    return {a[0] * a[1]};
  };
  session.judge(leaves({{4}, {4}}), program);
}

void input_mutation_metadata_simple(Session& session) {
  const auto program = [](Tensors& a) -> Tensors {
    a[0].transpose_(1, 0);
    return {a[0] + a[1]};
  };
  session.judge(non_leaves({{3, 3}, {3, 3}}), program);
  session.judge(plain({{3, 3}, {3, 3}}), program);
}

}  // namespace

Category input_mutation_data() {
  return {"Input mutation: data",
          {
              {"test_input_mutation_simple", input_mutation_simple},
              {"test_leaf_mutation_under_no_grad", leaf_mutation_under_no_grad},
          }};
}

Category input_mutation_metadata() {
  return {"Input mutation: metadata",
          {
              {"test_input_mutation_metadata", input_mutation_metadata_simple},
          }};
}

}  // namespace tandem::conformance
