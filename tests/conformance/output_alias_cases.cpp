#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

namespace tandem::conformance {
namespace {

void input_output_view_simple(Session& session) {
  const Function program = [](Tensors& a) -> Tensors { return {a[0].view(-1)}; };
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.signature().outputs[0].kind, ir::OutputKind::AliasOfInput);
    EXPECT_EQ(entry.kind(), EntryKind::inference) << "a view has no backward of ours";
  };
  session.judge(non_leaves({{3, 3}}), program, settings);
  session.judge(leaves({{3, 3}}), program, settings);
  session.judge(plain({{3, 3}}), program, settings);
}

void some_output_requires_grad_input_doesnt(Session& session) {
  session.judge(
      [] {
        at::Tensor a = leaf({3, 3}, false), b = leaf({3, 3});
        return Inputs{{a, b}, {b}};
      },
      [](Tensors& a) -> Tensors {
        at::Tensor view = a[0].view(-1);
        view.requires_grad_(true);
        return {view};
      });
}

/// Only the first result is differentiated.
void backward_prologue_correctness_with_alias(Session& session) {
  const Function program = [](Tensors& a) -> Tensors { return {a[0] * 2, a[0].view(-1)}; };
  session.judge(leaves({{2, 2}}), program);
  const auto compiled =
      tandem::compile_boxed([&](Tensors arguments) { return program(arguments); });
  const at::Tensor x = leaf({2, 2});
  compiled({x})[0].sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), torch::full({2, 2}, 2.0)));
}

void cross_dtype_view_alias(Session& session) {
  session.judge([] { return Inputs{{torch::randn({4}, torch::kComplexFloat)}}; },
                [](Tensors& a) -> Tensors { return {torch::view_as_real(a[0])}; });
}

void training_path_mixed_requires_grad(Session& session) {
  session.judge(
      [] {
        at::Tensor x = leaf({2, 3}), y = leaf({2, 3}, false);
        return Inputs{{x, y}, {x}};
      },
      [](Tensors& a) -> Tensors { return {a[0] * 2, a[1].view(-1)}; });
}

void output_is_input(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.signature().outputs[0].kind, ir::OutputKind::IsInput);
  };
  session.judge(
      plain({{4}}),
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        return {a[0]};
      },
      settings);
}

}  // namespace

Category output_alias() {
  return {
      "Output alias of an input",
      {
          {"test_input_output_view_simple", input_output_view_simple},
          judged_both("test_input_output_view_mutate_multiple", {{2, 2}, {2, 2}, {2, 2}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        a[2].mul_(3);
                        return {a[1].view({2, 2}), a[2].view({2, 2})};
                      }),
          judged_both("test_input_output_view_metadata_mutate_multiple", {{2, 2}, {2, 2}, {2, 2}},
                      [](Tensors& a) -> Tensors {
                        a[1].mul_(3);
                        a[2].t_();
                        return {a[0].view({2, 2}), a[1].view({2, 2}), a[2].view({2, 2})};
                      }),
          judged_both("test_input_mutation_and_output_view", {{3, 3}},
                      [](Tensors& a) -> Tensors {
                        a[0].add_(1);
                        return {a[0].view(-1)};
                      }),
          judged_both("test_input_mutation_output_view_multiple", {{3, 3}, {3, 3}, {3, 3}, {3, 3}},
                      [](Tensors& a) -> Tensors {
                        a[1].transpose_(1, 0);
                        a[2].add_(1);
                        return {a[3] + 1, a[1].diagonal(), a[0] + a[2]};
                      }),
          judged_both("test_view_detach", {{4}},
                      [](Tensors& a) -> Tensors {
                        at::Tensor before = a[0].detach();
                        a[0].mul_(2);
                        return {a[0], before};
                      }),
          {"test_some_output_requires_grad_input_doesnt", some_output_requires_grad_input_doesnt},
          judged("test_some_outputs_dont_require_grad_view", leaves({{4}, {4}}),
                 [](Tensors& a) -> Tensors { return {a[0].detach(), a[1]}; }),
          judged("test_some_outputs_dont_require_grad_non_view", leaves({{4}, {4}}),
                 [](Tensors& a) -> Tensors { return {(a[0] + 1).detach(), a[1]}; }),
          {"test_backward_prologue_correctness_with_alias",
           backward_prologue_correctness_with_alias},
          judged("test_output_is_view_of_input", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0].view(-1)}; }),
          {"test_output_is_input", output_is_input},
          judged("test_mixed_alias_and_non_alias_outputs", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0] + 1, a[0].view(-1)}; }),
          judged("test_output_alias_with_mutation", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   a[0].add_(1);
                   return {a[0].view(-1)};
                 }),
          judged("test_multiple_views_of_same_input", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0].view(-1), a[0].t()}; }),
          judged("test_training_path_view_of_input", leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0] * 2, a[0].view(-1)}; }),
          judged("test_training_path_mutation_and_alias", non_leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   a[0].add_(1);
                   return {a[0] * 2, a[0].view(-1)};
                 }),
          judged("test_training_path_is_input", leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0] * 2, a[0]}; }),
          {"test_cross_dtype_view_alias", cross_dtype_view_alias},
          {"test_training_path_mixed_requires_grad", training_path_mixed_requires_grad},
      }};
}

}  // namespace tandem::conformance
