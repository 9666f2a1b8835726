#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

namespace tandem::conformance {
namespace {

/// Views of what was reshaped in place afterwards: no view op leads to them any more.
Settings views_with_own_nodes() {
  Settings settings;
  settings.own_view_nodes = true;
  settings.sums_may_round = true;
  return settings;
}

void no_base_without_grad(Session& session) {
  session.judge(
      [] {
        at::Tensor a = leaf({3, 3}, false), b = leaf({3, 3});
        return Inputs{{a, b}, {b}};
      },
      [](Tensors& a) -> Tensors { return {(a[0] * 3).view(-1), a[1] + 1}; });
}

Tensors flattened(Tensors& a) { return {(a[0] * 3).view(-1)}; }

}  // namespace

Category intermediate_base() {
  return {"Intermediate base, aliases among outputs",
          {
              judged_both("test_outputs_are_aliased", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor b = a[0] * 2;
                            return {b, b.view(-1)};
                          }),
              judged_both("test_output_aliases_intermediate_single", {{3, 3}}, flattened),
              judged_both("test_output_aliases_intermediate_mutation_linear", {{3, 3}},
                          [](Tensors& a) -> Tensors { return {(a[0] + 1).view(-1)}; }),
              {"test_output_aliases_intermediate_no_grad", no_base_without_grad},
              judged_both("test_output_aliases_intermediate_returned_multiple_times", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor out = a[0] * 3;
                            return {out, out.view(-1), out};
                          }),
              judged_both("test_output_aliases_intermediate_multiple", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor out = a[0] * 3;
                            return {out.view(-1), out.view(-1)};
                          }),
              judged_both("test_output_aliases_intermediate_and_returned", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor out = a[0] * 3;
                            return {out.view(-1), out};
                          }),
              judged_both("test_output_aliases_intermediate_and_returned_flipped", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor out = a[0] * 3;
                            return {out, out.view(-1)};
                          }),
              judged_both("test_output_aliases_intermediate_inplace_view", {{2, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor out = a[0] * 3;
                            out.t_();
                            return {out};
                          }),
              judged_both(
                  "test_output_aliases_intermediate_inplace_view_and_view", {{2, 3}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor out = a[0] * 3;
                    at::Tensor before = out.view(-1);
                    out.t_();
                    return {before, out, out.unsqueeze(0)};
                  },
                  views_with_own_nodes()),
              judged_both("test_output_aliases_intermediate_multiple_mixed", {{3, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor first = a[0] * 3, second = a[0] * 4;
                            return {first.view(-1), second.transpose(1, 0), first.transpose(1, 0)};
                          }),
              judged_both("test_output_aliases_intermediate", {{2, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor y = a[0] * 2;
                            return {y, y.view(-1)};
                          }),
              judged_both("test_training_path_alias_of_intermediate_detach", {{2, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor y = a[0] * 2;
                            return {y.detach(), y.view(-1)};
                          }),
              judged_both("test_alias_of_intermediate_save_as_output", {{2, 3}},
                          [](Tensors& a) -> Tensors {
                            at::Tensor y = a[0] * 2;
                            return {y.view(-1), y.t()};
                          }),
              judged_both("test_xform_unsafe_view_output", {{2, 3}}, flattened),
          }};
}

}  // namespace tandem::conformance
