#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

#include <memory>

namespace tandem::conformance {
namespace {

/// What the signature says of argument `index` of a function without closure.
const ir::InputFacts& argument(const Entry& entry, size_t index) {
  return entry.signature().inputs.at(static_cast<size_t>(entry.signature().lifted_count) + index);
}

void doubled_without_grad_mode(Tensors& a) {
  const torch::NoGradGuard no_grad;
  a[0].mul_(2);
}

/// A view of a tensor that is no argument: every second element, a column.
MakeInputs view_of_hidden(std::vector<int64_t> base,
                          const std::function<at::Tensor(at::Tensor)>& view, bool requires_grad) {
  return [=] {
    at::Tensor p = leaf(base, requires_grad), b = p * 1.5;
    return Inputs{{view(b)}, {p}, {b}};
  };
}

void mutates_input_noncontiguous(Session& session) {
  const auto every_second = [](const at::Tensor& b) { return b.slice(0, 0, 4, 2); };
  const Function program = [](Tensors& a) -> Tensors {
    a[0].add_(1);
    return {};
  };
  session.judge(view_of_hidden({4}, every_second, true), program);
  session.judge(view_of_hidden({4}, every_second, false), program);
}

void input_mutation_noncontiguous(Session& session) {
  const auto column = [](const at::Tensor& b) { return b.select(1, 0); };
  const Function program = [](Tensors& a) -> Tensors {
    a[0].mul_(2);
    return {a[0] + 1};
  };
  session.judge(view_of_hidden({2, 2}, column, true), program);
  session.judge(view_of_hidden({2, 2}, column, false), program);
}

void input_mutation_requires_grad_detach(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    a[0].detach().mul_(2);
    return {a[0] + 3};
  };
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_TRUE(argument(entry, 0).data_written);
    EXPECT_FALSE(argument(entry, 0).history_changed) << "autograd must not see the write";
  };
  session.judge(leaves({{4}}), program, settings);
  session.judge(non_leaves({{4}}), program, settings);
}

void input_mutation_requires_grad_no_grad(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.kind(), EntryKind::training);
    EXPECT_TRUE(argument(entry, 0).data_written);
    EXPECT_FALSE(argument(entry, 0).history_changed);
    EXPECT_EQ(entry.signature().tangents.size(), 1u) << "the new data of the input has none";
  };
  session.judge(
      non_leaves({{4}}),
      [](Tensors& a) -> Tensors {
        doubled_without_grad_mode(a);
        return {a[0] + 3};
      },
      settings);
}

void input_mutation_requires_grad_no_grad_inference_graph(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.kind(), EntryKind::inference);
    EXPECT_TRUE(argument(entry, 0).data_written);
  };
  session.judge(
      non_leaves({{4}}),
      [](Tensors& a) -> Tensors {
        const torch::NoGradGuard no_grad;
        a[0].mul_(2);
        return {a[0] + 3};
      },
      settings);
}

/// Eager refuses the write to a leaf, so do we; the peer lets it through.
void backward_prologue_correctness_with_mutation(Session& session) {
  Settings settings;
  settings.raises = "a leaf Variable that requires grad is being used in an in-place operation";
  session.judge(
      leaves({{4}, {4}}),
      [](Tensors& a) -> Tensors {
        a[0].add_(1);
        return {a[1] * 2};
      },
      settings);
}

/// bfloat16 numbers below zero, so that every element is scaled by its noise.
MakeInputs rrelu_inputs(bool requires_grad) {
  return [=] {
    at::Tensor p =
        (-torch::rand({4, 4}) - 0.5).to(torch::kBFloat16).set_requires_grad(requires_grad);
    at::Tensor noise = torch::zeros({4, 4}, torch::kBFloat16).fill_(2);
    return Inputs{{p * 1.5, noise}, {p}};
  };
}

void rrelu_with_noise_mutation(Session& session) {
  for (const bool requires_grad : {true, false}) {
    session.judge(rrelu_inputs(requires_grad), [](Tensors& a) -> Tensors {
      auto [result, noise] = at::rrelu_with_noise_functional(a[0], a[1], 0.1, 0.9, true);
      return {result, noise};
    });
    session.judge(rrelu_inputs(requires_grad), [](Tensors& a) -> Tensors {
      return {at::rrelu_with_noise(a[0], a[1], 0.1, 0.9, true)};
    });
    session.judge(rrelu_inputs(requires_grad), [](Tensors& a) -> Tensors {
      return {at::rrelu_with_noise_(a[0], a[1], 0.1, 0.9, true)};
    });
  }
}

void no_mutation_no_epilogue(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) { EXPECT_FALSE(entry.signature().writes_any_input()); };
  session.judge(leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0] + 1}; }, settings);
}

Tensors add_to_each(Tensors& a) {
  at::Tensor sum = torch::zeros({4});
  for (at::Tensor& t : a) {
    t.add_(1);
    sum = sum + t;
  }
  return {sum};
}

void each_version_is_counted(Session& session, size_t count) {
  Settings settings;
  settings.entry = [count](const Entry& entry) {
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(argument(entry, i).version_delta, 1) << i;
  };
  session.judge(plain(Sizes(count, {4})), add_to_each, settings);
  session.judge(non_leaves(Sizes(count, {4})), add_to_each, settings);
}

void leaf_no_grad_mutation_uses_copy(Session& session) {
  session.judge(leaves({{4}}), [](Tensors& a) -> Tensors {
    doubled_without_grad_mode(a);
    return {a[0] * 3};
  });
  session.judge(leaves({{4}}), [](Tensors& a) -> Tensors {
    a[0].detach().mul_(2);
    return {a[0] * 3};
  });
}

/// A parameter that the program adds to while it has grad mode switched off by hand.
Program parameter_updated_inside() {
  auto weight = std::make_shared<at::Tensor>(leaf({4}));
  return {[=] {
            at::Tensor x = leaf({4});
            return Inputs{{x}, {*weight, x}};
          },
          [=](Tensors& a) -> Tensors {
            const bool mode = torch::GradMode::is_enabled();
            torch::GradMode::set_enabled(false);
            weight->add_(a[0]);
            torch::GradMode::set_enabled(mode);
            return {a[0] * *weight};
          }};
}

void slice_assigned_then_viewed(Session& session, bool intermediate) {
  const Function program = [=](Tensors& a) -> Tensors {
    at::Tensor t = intermediate ? torch::sin(a[0]) : a[0];
    t.slice(1, 0, 3).slice(2, 2, 6).copy_(a[1].slice(1, 0, 3).slice(2, 0, 4));
    return {t.view({1, 2, 4, 6})};
  };
  session.judge(plain({{2, 4, 6}, {2, 3, 5}}), program);
  session.judge(non_leaves({{2, 4, 6}, {2, 3, 5}}), program);
}

void expand_mutation_backwards(Session& session) {
  session.judge(
      [] {
        at::Tensor x = leaf({2, 2}, false), z = leaf({3, 2, 2});
        return Inputs{{x, z}, {z}};
      },
      [](Tensors& a) -> Tensors {
        at::Tensor y = a[0].expand({3, 2, 2});
        y.select(0, 1).select(0, 1).mul_(5);
        return {y * a[1]};
      });
}

}  // namespace

Category input_mutation_data() {
  const auto closed_over = [](Session& session) { session.judge(parameter_updated_inside); };
  return {
      "Input mutation: data",
      {
          judged_both("test_squeeze_mutation", {{3, 1}},
                      [](Tensors& a) -> Tensors {
                        at::Tensor b = a[0].clone().squeeze(-1);
                        b.add_(1.0);
                        return {a[0] + b};
                      }),
          judged_both("test_input_mutation_simple", {{3, 3}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        return {a[0] * 3};
                      }),
          {"test_mutates_input_noncontiguous", mutates_input_noncontiguous},
          judged_both("test_input_mutation_is_output", {{3, 3}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        return {a[0]};
                      }),
          judged_both("test_input_mutation_multiple", {{3, 3}, {3, 3}, {3, 3}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        a[2].mul_(2);
                        return {a[0] + a[1] + a[2]};
                      }),
          judged("test_input_mutation_return", plain({{3, 3}, {3, 3}}),
                 [](Tensors& a) -> Tensors { return {torch::sin_out(a[1], a[0])}; }),
          {"test_input_mutation_requires_grad_detach", input_mutation_requires_grad_detach},
          {"test_input_mutation_requires_grad_no_grad", input_mutation_requires_grad_no_grad},
          {"test_input_mutation_requires_grad_no_grad_inference_graph",
           input_mutation_requires_grad_no_grad_inference_graph},
          {"test_input_mutation_noncontiguous", input_mutation_noncontiguous},
          {"test_backward_prologue_correctness_with_mutation",
           backward_prologue_correctness_with_mutation,
           differs("a write to a leaf is eager's error")},
          {"test_rrelu_with_noise_mutation", rrelu_with_noise_mutation},
          judged_both("test_single_data_mutation", {{4}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        return {a[0] + 1};
                      }),
          judged_both("test_multiple_data_mutations", {{4}, {4}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        a[1].add_(1);
                        return {a[0] + a[1]};
                      }),
          judged("test_leaf_mutation_under_no_grad", leaves({{4}, {4}}),
                 [](Tensors& a) -> Tensors {
                   doubled_without_grad_mode(a);
                   return {a[0] * a[1]};
                 }),
          judged_both("test_metadata_only_mutation", {{2, 3}},
                      [](Tensors& a) -> Tensors {
                        a[0].transpose_(0, 1);
                        return {a[0] * 2};
                      }),
          judged_both("test_data_and_metadata_mutation", {{2, 3}},
                      [](Tensors& a) -> Tensors {
                        a[0].mul_(2);
                        a[0].transpose_(0, 1);
                        return {a[0] + 1};
                      }),
          {"test_no_mutation_no_epilogue", no_mutation_no_epilogue},
          judged("test_inference_with_mutation", plain({{4}}),
                 [](Tensors& a) -> Tensors {
                   a[0].add_(1);
                   return {a[0] * 2};
                 }),
          {"test_multiple_inputs_mutation_version_increment",
           [](Session& session) { each_version_is_counted(session, 3); }},
          {"test_many_mutations", [](Session& session) { each_version_is_counted(session, 5); }},
          judged("test_inference_with_output_alias", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0].view(-1), a[0] * 2}; }),
          judged("test_inference_with_mutation_and_alias", plain({{2, 3}, {4}}),
                 [](Tensors& a) -> Tensors {
                   a[0].add_(1);
                   return {a[0].view(-1), a[1] * 2};
                 }),
          judged("test_training_with_alias", leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0] * 2, a[0].view(-1)}; }),
          judged("test_multiple_output_aliases_different_inputs", leaves({{2, 3}, {3, 2}}),
                 [](Tensors& a) -> Tensors { return {a[0].view(-1), a[1].t()}; }),
          judged("test_metadata_mutation", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   a[0].t_();
                   return {a[0] + 1};
                 }),
          {"test_leaf_no_grad_mutation_uses_copy", leaf_no_grad_mutation_uses_copy},
          {"test_mutation", closed_over},
          judged("test_call_fn_with_non_const_inputs_aot_unsafe", leaves({{4}, {4}}),
                 [](Tensors& a) -> Tensors {
                   const bool mode = torch::GradMode::is_enabled();
                   torch::GradMode::set_enabled(false);
                   a[0].add_(a[1]);
                   torch::GradMode::set_enabled(mode);
                   return {a[0] * a[1]};
                 }),
          {"test_mutation1", [](Session& session) { slice_assigned_then_viewed(session, false); }},
          {"test_negative_testing_mutation",
           [](Session& session) { slice_assigned_then_viewed(session, true); }},
          judged_both("test_negative_testing", {{4}, {4}},
                      [](Tensors& a) -> Tensors {
                        at::Tensor t = torch::cos(a[0]);
                        t.add_(a[1]);
                        return {t.sin()};
                      }),
          judged("test_aot_autograd_expand_mutation_functionalizes", plain({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   at::Tensor y = a[0].expand({3, 2, 2});
                   y.select(0, 0).select(0, 0).add_(5);
                   return {y};
                 }),
          {"test_aot_autograd_expand_mutation_backwards", expand_mutation_backwards},
      }};
}

}  // namespace tandem::conformance
