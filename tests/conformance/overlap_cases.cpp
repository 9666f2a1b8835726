#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

/// Arguments that are the same tensor, or share memory.
namespace tandem::conformance {
namespace {

/// Argument `index` of a function without closure is the same tensor as argument 0, and the graph
/// does not read it.
void expect_duplicate(const Entry& entry, size_t index) {
  EXPECT_EQ(entry.signature().inputs.at(index).duplicate_of, 0) << "argument " << index;
}

/// `same` says which argument is the same tensor as an earlier one.
MakeInputs repeated(std::vector<size_t> same, bool requires_grad) {
  return [=] {
    Inputs inputs;
    for (size_t i = 0; i < same.size(); ++i) {
      if (same[i] == i) {
        inputs.leaves.push_back(leaf({4}, requires_grad));
        inputs.arguments.push_back(inputs.leaves.back() * 1.5);
      } else {
        inputs.arguments.push_back(inputs.arguments[same[i]]);
      }
    }
    return inputs;
  };
}

void dupe_arg(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) { expect_duplicate(entry, 1); };
  session.judge(
      [] {
        at::Tensor x = leaf({3, 3});
        return Inputs{{x, x}, {x}};
      },
      [](Tensors& a) -> Tensors { return {a[0] + a[1]}; }, settings);
}

void dupe_arg_returned_as_output(Session& session) {
  session.judge(
      [] {
        at::Tensor a = torch::randn({4}), b = torch::randn({4});
        return Inputs{{a, b, a}};
      },
      [](Tensors& a) -> Tensors {
        a[0].select(0, 0).add_(1);
        return {a[2]};
      });
}

void duplicates_with_mutation(Session& session, const std::vector<size_t>& same) {
  Settings settings;
  settings.entry = [same](const Entry& entry) {
    for (size_t i = 0; i < same.size(); ++i) {
      if (same[i] != i) expect_duplicate(entry, i);
    }
  };
  const Function program = [](Tensors& a) -> Tensors {
    a[0].add_(1);
    at::Tensor sum = a[0];
    for (size_t i = 1; i < a.size(); ++i) sum = sum + a[i];
    return {sum};
  };
  session.judge(repeated(same, false), program, settings);
  session.judge(repeated(same, true), program, settings);
}

/// Views of one tensor that is no argument itself, with and without grad.
using MakeViews = std::function<Tensors(const at::Tensor&)>;
void judge_views(Session& session, std::vector<int64_t> base, const MakeViews& views,
                 const Function& program, const Settings& settings = {}) {
  for (const bool requires_grad : {true, false}) {
    session.judge(
        [=] {
          at::Tensor p = leaf(base, requires_grad), b = p * 1.5;
          return Inputs{views(b), {p}, {b}};
        },
        program, settings);
  }
}

Tensors first_incremented(Tensors& a) {
  a[0].add_(1);
  return {a[0] + a[1]};
}

/// The first argument that overlaps the next one is doubled; the sum of all is returned.
Function doubled(size_t index) {
  return [index](Tensors& a) -> Tensors {
    a[index].mul_(2);
    at::Tensor sum = a[0];
    for (size_t i = 1; i < a.size(); ++i) sum = sum + a[i];
    return {sum};
  };
}

Tensors overlapping_pair(const at::Tensor& b) { return {b.slice(0, 0, 6), b.slice(0, 2, 8)}; }

void aliases_and_output_alias(Session& session) {
  judge_views(
      session, {2, 2}, [](const at::Tensor& b) -> Tensors { return {b.view(-1), b.view(-1)}; },
      [](Tensors& a) -> Tensors {
        a[0].add_(1);
        return {a[1].view(a[1].sizes())};
      });
}

void aliased_with_mutation_output_alias(Session& session) {
  judge_views(
      session, {2, 2},
      [](const at::Tensor& b) -> Tensors { return {b.view(-1), torch::ones({2, 2}), b.view(-1)}; },
      [](Tensors& a) -> Tensors {
        a[2].mul_(2);
        return {a[1] + 1, a[2].view(-1)};
      });
}

/// (view, number, view): a calling form of its own.
void aliased_with_mutation_nontensor_interleaved(Session& session) {
  for (const bool requires_grad : {true, false}) {
    session.judge([=] {
      Program program{[=] {
                        at::Tensor p = leaf({2, 2}, requires_grad), b = p * 1.5;
                        return Inputs{{b.view(-1), b.view(-1)}, {p}, {b}};
                      },
                      [](Tensors& a) -> Tensors {
                        a[1].mul_(2);
                        return {a[0] + 1};
                      }};
      program.compile = [](const Options& options) {
        auto function = [](at::Tensor a, int64_t number, at::Tensor c) {
          c.mul_(2);
          return a + number;
        };
        return handle_of(
            tandem::compile(function, options),
            [](const auto& compiled, Tensors& a) -> Tensors { return {compiled(a[0], 1, a[1])}; });
      };
      return program;
    });
  }
}

void metadata_mutation_aliases(Session& session) {
  judge_views(
      session, {4}, [](const at::Tensor& b) -> Tensors { return {b.view(-1), b.view(-1)}; },
      [](Tensors& a) -> Tensors {
        a[0].t_();
        return {a[0] + a[1]};
      });
}

/// Two aliases that have no base on record and need no grad; a third argument does.
void aliases_and_none_require_gradients(Session& session) {
  session.judge(
      [] {
        at::Tensor x = torch::randn({4}), c = leaf({4});
        return Inputs{{x.detach(), x.detach(), c}, {c}, {x}};
      },
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        return {a[1] + 1, a[2] + a[1]};
      });
}

/// Detached views: they share memory, and autograd knows no base.
MakeInputs detached(std::vector<int64_t> base, const MakeViews& views) {
  return [=] {
    at::Tensor b = torch::randn(base);
    Inputs inputs{{}, {}, {b}};
    for (const at::Tensor& view : views(b)) inputs.arguments.push_back(view.detach());
    return inputs;
  };
}

void metadata_mutation_correctness(Session& session) {
  judge_views(
      session, {4, 4},
      [](const at::Tensor& b) -> Tensors { return {b.slice(0, 0, 3), b.slice(0, 1, 4)}; },
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        a[1].transpose_(0, 1);
        return {a[0].sum() + a[1].sum()};
      });
}

void multiple_groups(Session& session) {
  for (const bool requires_grad : {true, false}) {
    session.judge(
        [=] {
          at::Tensor p = leaf({8}, requires_grad), q = leaf({8}, requires_grad);
          at::Tensor b = p * 1.5, c = q * 2.5;
          Inputs inputs{overlapping_pair(b), {p, q}, {b, c}};
          for (const at::Tensor& view : overlapping_pair(c)) inputs.arguments.push_back(view);
          return inputs;
        },
        [](Tensors& a) -> Tensors {
          a[0].mul_(2);
          a[2].add_(3);
          return {a[0] + a[1], a[2] + a[3]};
        });
  }
}

}  // namespace

Category dedupe() {
  return {"Dedupe of arguments",
          {
              {"test_dupe_arg", dupe_arg},
              {"test_dupe_arg_returned_as_output", dupe_arg_returned_as_output},
              {"test_duplicate_args_with_mutation",
               [](Session& session) { duplicates_with_mutation(session, {0, 0}); }},
              {"test_three_way_duplicate_with_mutation",
               [](Session& session) { duplicates_with_mutation(session, {0, 0, 0}); }},
              {"test_partial_duplicate_with_mutation",
               [](Session& session) { duplicates_with_mutation(session, {0, 0, 2}); }},
          }};
}

Category synthetic_base() {
  const auto rows = [](const at::Tensor& b) -> Tensors { return {b[0], b[0]}; };
  const auto row_and_base = [](const at::Tensor& b) -> Tensors { return {b[0], b}; };
  const auto two_rows = [](const at::Tensor& b) -> Tensors { return {b[0], b[1]}; };
  return {"Synthetic base (aliased, mutated inputs)",
          {
              {"test_input_mutation_aliases_other_input",
               [=](Session& session) { judge_views(session, {4, 2}, rows, first_incremented); }},
              {"test_input_mutation_aliases_other_input2",
               [=](Session& session) {
                 judge_views(session, {4, 2}, row_and_base, first_incremented);
               }},
              {"test_input_mutation_aliases_and_output_alias", aliases_and_output_alias},
              {"test_input_aliased_with_mutation_output_alias", aliased_with_mutation_output_alias},
              {"test_input_aliased_with_mutation_nontensor_interleaved",
               aliased_with_mutation_nontensor_interleaved},
              {"test_input_metadata_mutation_aliases", metadata_mutation_aliases},
              {"test_input_mutation_aliases_and_none_require_gradients",
               aliases_and_none_require_gradients},
              judged("test_synthetic_base_base_attribute_is_none", detached({2, 4}, two_rows),
                     first_incremented),
              {"test_synthetic_base_codegen_correctness",
               [](Session& session) { judge_views(session, {8}, overlapping_pair, doubled(0)); }},
              {"test_synthetic_base_codegen_with_non_aliased_args",
               [](Session& session) {
                 judge_views(
                     session, {8},
                     [](const at::Tensor& b) -> Tensors {
                       return {b.slice(0, 0, 6), b.slice(0, 2, 8), torch::ones({6})};
                     },
                     doubled(0));
               }},
              {"test_synthetic_base_codegen_all_aliased_no_others",
               [](Session& session) {
                 judge_views(
                     session, {8},
                     [](const at::Tensor& b) -> Tensors {
                       return {b.slice(0, 0, 6), b.slice(0, 1, 7), b.slice(0, 2, 8)};
                     },
                     doubled(0));
               }},
              {"test_synthetic_base_codegen_non_aliased_before_aliased",
               [](Session& session) {
                 judge_views(
                     session, {8},
                     [](const at::Tensor& b) -> Tensors {
                       return {torch::ones({6}), b.slice(0, 0, 6), b.slice(0, 2, 8)};
                     },
                     doubled(1));
               }},
              judged("test_synthetic_base_codegen_base_is_none", detached({8}, overlapping_pair),
                     first_incremented),
              {"test_synthetic_base_codegen_metadata_mutation_correctness",
               metadata_mutation_correctness},
              {"test_synthetic_base_codegen_multiple_groups_correctness", multiple_groups},
          }};
}

}  // namespace tandem::conformance
