#include "conformance/categories.h"
#include "conformance/variants.h"
#include "support/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>

/// What is computed again instead of being saved: by hand, and under a budget.
namespace tandem::conformance {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr int64_t kWidth = 512;  // a square of floats is one mebibyte

/// What a training step under this budget holds for its backward, and its matrix products there.
struct Held {
  int64_t bytes = 0;
  int64_t products = 0;
};
Held held(const MakeInputs& inputs, const Function& program, double budget) {
  const auto compiled =
      tandem::compile_boxed([=](Tensors list) { return program(list); }, {.memory_budget = budget});
  compiled(inputs().arguments);
  const Entry entry = compiled.entries().front();
  Held found;
  for (const Saved& saved : entry.saved()) found.bytes += saved.bytes;
  found.products = count_of(entry.backward(), "aten::mm");
  return found;
}

void cheap_is_made_again(Session&) {
  const MakeInputs inputs = leaves({{kWidth, kWidth}, {kWidth, kWidth}});
  const Function program = [](Tensors& a) -> Tensors { return {a[0].cos().mm(a[1]).sum()}; };
  const Held all = held(inputs, program, 1.0), half = held(inputs, program, 0.5);
  EXPECT_EQ(all.bytes, kMebibyte);
  EXPECT_EQ(half.bytes, 0);
  EXPECT_EQ(half.products, all.products);
}

Tensors even_chain(Tensors& a) {
  at::Tensor x = a[0].cos();
  for (size_t i = 1; i < a.size(); ++i) x = x.mm(a[i]).cos();
  return {x.sum()};
}
const MakeInputs kSixSquares = leaves(Sizes(6, {kWidth, kWidth}));

void matmul_even_chain(Session&) {
  const int64_t products = held(kSixSquares, even_chain, 1.0).products;
  for (int tenths = 0; tenths <= 10; ++tenths) {
    const Held found = held(kSixSquares, even_chain, tenths / 10.0);
    const int64_t expected = tenths <= 5 ? tenths : tenths < 10 ? 5 : 10;
    EXPECT_EQ(found.bytes, expected * kMebibyte) << tenths;
    EXPECT_EQ(found.products, products + std::max(0, 5 - tenths)) << tenths;
  }
}

/// Independent products whose results have these sizes; every sum of some of them can be held.
void matmul_uneven_chain(Session&) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{11, 3, 4, 2}, {3, 5, 11, 17, 14}}) {
    Sizes shapes = {{kWidth, kWidth}};
    int64_t total = 0;
    for (const int64_t size : sizes) {
      shapes.push_back({kWidth, size * kWidth});
      total += size;
    }
    const Function program = [](Tensors& a) -> Tensors {
      at::Tensor sum = torch::zeros({});
      for (size_t i = 1; i < a.size(); ++i) sum = sum + a[0].mm(a[i]).cos().sum();
      return {sum};
    };
    int64_t part = 0;
    for (const int64_t size : sizes) {
      part += size;
      EXPECT_EQ(held(leaves(shapes), program, double(part) / double(total)).bytes,
                part * kMebibyte);
    }
  }
}

void cheaper_product_is_made_again(Session&) {
  const MakeInputs inputs = leaves({{1024, 1024}, {1024, 1024}, {1024, 2048}, {2048, 1024}});
  const Function program = [](Tensors& a) -> Tensors {
    return {(a[0].mm(a[1]).cos().sum() + a[2].mm(a[3]).cos().sum())};
  };
  EXPECT_EQ(held(inputs, program, 1.0).bytes, 8 * kMebibyte);
  EXPECT_EQ(held(inputs, program, 0.5).bytes, 4 * kMebibyte);
}

void measured_times(Session& session) {
  const Held found = held(kSixSquares, even_chain, 0.2);
  EXPECT_EQ(found.bytes, 2 * kMebibyte);
  session.missing("run times of ops that are measured");
}

void attention_or_product(Session&) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {1024, 2048}, {2048, 2048}, {4096, 2048}, {2048, 512}, {1024, 256}, {512, 4096}, {256, 8192}};
  for (const auto& [length, width] : shapes) {
    const Function program = [](Tensors& a) -> Tensors {
      const at::Tensor y = at::scaled_dot_product_attention(a[0], a[0], a[0]);
      return {y.flatten(0, 2).mm(a[1]).cos().sum()};
    };
    const Held all = held(leaves({{1, 1, length, width}, {width, width}}), program, 1.0);
    const Held some = held(leaves({{1, 1, length, width}, {width, width}}), program, 0.6);
    EXPECT_LT(some.bytes, all.bytes);
    EXPECT_EQ(some.products > all.products, length > width) << length << " by " << width;
  }
}

/// Part of a planner that there is not; the words say what it has to answer.
Case planner(std::string name, std::string what) {
  return {std::move(name),
          [=](Session& session) { session.missing("a plan of what is made again: " + what); },
          later(Feature::Budgets, "a plan of what is made again")};
}

/// A budget for a part of a function.
Case region_budget(std::string name, std::string what) {
  return {std::move(name),
          [=](Session& session) { session.missing("a memory budget of a region: " + what); },
          later(Feature::Budgets, "a memory budget of a region")};
}

Options with_budget(double budget) {
  Options options;
  options.memory_budget = budget;
  return options;
}

at::Tensor doubled(const at::Tensor& x) { return x * 2; }

void last_budget_wins(Session&) {
  Options options = with_budget(0.0);
  options.memory_budget = 1.0;
  const auto compiled =
      tandem::compile([](const at::Tensor& x) { return x.cos().exp().sum(); }, options);
  compiled(leaf({4}));
  int64_t bytes = 0;
  for (const Saved& saved : compiled.entries().front().saved()) bytes += saved.bytes;
  EXPECT_GT(bytes, 0);
}

void whole_numbers(Session&) {
  for (const int budget : {0, 1}) {
    EXPECT_TRUE(at::equal(tandem::compile(doubled, with_budget(budget))(torch::ones({2})),
                          torch::full({2}, 2.0)));
  }
}

void bounds(Session&) {
  for (const double budget : {0.0, 1.0}) tandem::compile(doubled, with_budget(budget));
}

/// The compiler sees to it in the code, Tandem in the environment.
void wrong_type(Session&) {
  static_assert(!std::is_assignable_v<std::optional<double>&, std::string>);
  static_assert(!std::is_assignable_v<std::optional<double>&, const char*>);
  const test::EnvironmentVariable variable("TANDEM_MEMORY_BUDGET", "half");
  try {
    tandem::compile(doubled);
    ADD_FAILURE() << "not refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("TANDEM_MEMORY_BUDGET"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("got \"half\""), std::string::npos) << error.what();
  }
}

void out_of_range(Session&) {
  for (const double budget : {-0.1, 1.5}) {
    try {
      tandem::compile(doubled, with_budget(budget));
      ADD_FAILURE() << "not refused";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("expected a share from 0 to 1"), std::string::npos)
          << error.what();
    }
  }
}

const Standing kNeedsBudget = later(Feature::Budgets, "memory_budget is not built");

}  // namespace

Category checkpoints() {
  return {"Checkpointing, memory budget, knapsack",
          {
              {"test_rematerializes_cheap", cheap_is_made_again, kNeedsBudget},
              {"test_matmul_even_chain", matmul_even_chain, kNeedsBudget},
              {"test_matmul_uneven_chain", matmul_uneven_chain, kNeedsBudget},
              {"test_prioritize_cheaper_matmul", cheaper_product_is_made_again, kNeedsBudget},
              {"test_profile", measured_times, kNeedsBudget},
              {"test_attention_vs_linear", attention_or_product, kNeedsBudget},
              planner("test_inialize_from_graph",
                      "order, edges and repeatable nodes of a chain of five with an extra reader"),
              planner("test_full_joint_nx_graph", "the whole graph without its outputs"),
              planner("test_simplified_fx_joint_graph", "the graph rebuilt, with its outputs"),
              planner("test_get_non_ac_peak_memory", "peak of a step in which all is saved"),
              planner("test_get_theoretical_max_runtime", "time if all is made again"),
              planner("test_get_knapsack_memory_input", "bytes of each repeatable node"),
              planner("test_get_knapsack_runtime_input", "time of each repeatable node"),
              planner("test_recomputable_node_only_graph",
                      "repeatable nodes 1, 2, 5 with direct edges: 1-2"),
              planner("test_recomputable_node_only_graph_with_larger_graph_context",
                      "the same with paths past other nodes: 1-2, 2-5"),
              planner("test_evaluate_knapsack_output_not_accounting_for_backward_pass",
                      "bytes 0.1, 0.2, 0.2, times 100, 50, 51, first saved: peak 0.1, time 101"),
              planner("test_evaluate_knapsack_output_accounting_for_backward_pass",
                      "the same with the backward played through: peak 0.5, time 101"),
              planner("test_evaluate_knapsack_output_with_wrong_sized_values",
                      "an error if a node is in neither list"),
              planner("test_evaluate_distribution_of_results_for_knapsack_algo",
                      "peak and time over a row of budgets"),
              planner("test_get_knee_point_memory_budget",
                      "knee of that curve: at most 0.1 .. 0.5 give 0.1, 0.1, 0.3, 0.4, 0.4"),
              planner("test_get_backward_memory_from_topologically_sorted_graph",
                      "only node 1 saved: 0.1, 0.3, 0.5, 0.3, 0.1, 0.0"),
              planner("test_dp_knapsack", "best set of 13 tables of bytes and times"),
              planner("test_dp_knapsack_sliding_hirschberg", "the same 13 with memory of two rows"),
              region_budget("test_sets_budget_in_current_meta", "set, and found on the nodes"),
              {"test_overwrites_previous_budget", last_budget_wins, kNeedsBudget},
              {"test_accepts_int_budget", whole_numbers, kNeedsBudget},
              {"test_rejects_invalid_type", wrong_type},
              {"test_rejects_out_of_range", out_of_range},
              {"test_boundary_values", bounds, kNeedsBudget},
              region_budget("test_sets_budget_on_enter", "set for a scope"),
              region_budget("test_clears_budget_on_exit", "gone after the scope"),
              region_budget("test_restores_previous_budget", "the outer one is back"),
              region_budget("test_nested_modes", "the inner one counts"),
              region_budget("test_rejects_invalid_budget", "an error outside 0 to 1"),
              region_budget("test_repr", "printable"),
              region_budget("test_restores_on_exception", "the outer one is back after an error"),
          }};
}

}  // namespace tandem::conformance
