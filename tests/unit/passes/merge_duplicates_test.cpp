#include "passes/merge_duplicates.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

void expect_unchanged(const char* text) {
  ir::Graph graph = ir::parse(text);
  EXPECT_EQ(merge_duplicates(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

TEST(MergeDuplicates, MergesAChainOfEqualComputations) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.sin(%x)
      %b: f32[4] = aten.cos(%a)
      %c: f32[4] = aten.sin(%x)
      %d: f32[4] = aten.cos(%c)
      %y: f32[4] = aten.mul.Tensor(%b, %d)
      return %y: output 0
    })");

  EXPECT_EQ(merge_duplicates(graph).changes, 2);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.sin(%x)
      %b: f32[4] = aten.cos(%a)
      %y: f32[4] = aten.mul.Tensor(%b, %b)
      return %y: output 0
    })");
}

TEST(MergeDuplicates, MergesEveryResultOfANode) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %v: f32[4], %i: i64[4] = aten.max.dim(%x, 1, false)
      %w: f32[4], %j: i64[4] = aten.max.dim(%x, 1, false)
      %a: f32[4] = aten.mul.Tensor(%v, %w)
      %b: i64[4] = aten.mul.Tensor(%i, %j)
      return %a: output 0, %b: output 1
    })");

  EXPECT_EQ(merge_duplicates(graph).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %v: f32[4], %i: i64[4] = aten.max.dim(%x, 1, false)
      %a: f32[4] = aten.mul.Tensor(%v, %v)
      %b: i64[4] = aten.mul.Tensor(%i, %i)
      return %a: output 0, %b: output 1
    })");
}

TEST(MergeDuplicates, MergesViews) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[2, 4] (1, 2) = aten.t(%x)
      %b: f32[2, 4] (1, 2) = aten.t(%x)
      %y: f32[2, 4] (1, 2) = aten.mul.Tensor(%a, %b)
      return %y: output 0
    })");

  EXPECT_EQ(merge_duplicates(graph).changes, 1);
}

// Two draws are two draws.
TEST(MergeDuplicates, KeepsRandomDrawsApart) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %b: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %y: f32[4] = aten.mul.Tensor(%a, %b)
      return %y: output 0
    })");
}

TEST(MergeDuplicates, KeepsDifferentOperandsAndTypesApart) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.add.Scalar(%x, 1, 1)
      %b: f32[4] = aten.add.Scalar(%x, 1.0, 1)
      %c: f32[4] = aten.add.Scalar(%x, 0.0, 1)
      %d: f32[4] = aten.add.Scalar(%x, -0.0, 1)
      %e: f32[4] = aten.mul.Tensor(%a, %b)
      %f: f32[4] = aten.mul.Tensor(%c, %d)
      %y: f32[4] = aten.mul.Tensor(%e, %f)
      return %y: output 0
    })");
}

// The caller may write to one of them.
TEST(MergeDuplicates, KeepsReturnedTensorsApart) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.sin(%x)
      %b: f32[4] = aten.sin(%x)
      return %a: output 0, %b: output 1
    })");
}

// A write to the returned view would be seen by whoever uses the merged value.
TEST(MergeDuplicates, KeepsTheBaseOfAReturnedViewApart) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.sin(%x)
      %view: f32[2, 2] = aten.view(%a, [2, 2])
      %b: f32[4] = aten.sin(%x)
      return %view: output 0, %b: saved 0
    })");
}

TEST(MergeDuplicates, NeverMergesAcrossAWrite) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0, %z: f32[4] user_input 1) {
      %a: f32[4] = aten.sin(%x)
      %written: f32[4] = aten.copy_(%x, %z, false)
      %b: f32[4] = aten.sin(%x)
      %y: f32[4] = aten.mul.Tensor(%a, %b)
      return %y: output 0
    })");
}

// Two buffers to write to, equal only until the first write.
TEST(MergeDuplicates, KeepsWrittenTensorsApart) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0, %z: f32[4] user_input 1) {
      %a: f32[4] = aten.clone(%x, memory_format=none)
      %b: f32[4] = aten.clone(%x, memory_format=none)
      %c: f32[4] = aten.copy_(%a, %z, false)
      %y: f32[4] = aten.mul.Tensor(%c, %b)
      return %y: output 0
    })");
}

TEST(MergeDuplicates, MergesConstantsWithEqualBytes) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[2] user_input 0) {
      %a: f32[2] = constant {1.0, 2.0}
      %b: f32[2] = constant {1.0, 2.0}
      %c: f32[2] = constant {1.0, -2.0}
      %d: f32[2] = aten.mul.Tensor(%a, %b)
      %y: f32[2] = aten.mul.Tensor(%c, %d)
      return %y: output 0
    })");

  EXPECT_EQ(merge_duplicates(graph).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[2] user_input 0) {
      %a: f32[2] = constant {1.0, 2.0}
      %c: f32[2] = constant {1.0, -2.0}
      %d: f32[2] = aten.mul.Tensor(%a, %a)
      %y: f32[2] = aten.mul.Tensor(%c, %d)
      return %y: output 0
    })");
}

TEST(MergeDuplicates, LetsABackwardNodeGiveWayToAForwardOneOnly) {
  auto with_phases = [](ir::Phase first, ir::Phase second) {
    ir::Graph graph = ir::parse(R"(
      graph g(%x: f32[4] user_input 0) {
        %a: f32[4] = aten.sin(%x)
        %b: f32[4] = aten.sin(%x)
        %y: f32[4] = aten.mul.Tensor(%a, %b)
        return %y: output 0
      })");
    graph.set_phase(graph.node(graph.first_node()), first);
    graph.set_phase(graph.node(graph.next(graph.first_node())), second);
    return graph;
  };
  ir::Graph usual = with_phases(ir::Phase::Forward, ir::Phase::Backward);
  ir::Graph reversed = with_phases(ir::Phase::Backward, ir::Phase::Forward);

  EXPECT_EQ(merge_duplicates(usual).changes, 1);
  EXPECT_EQ(merge_duplicates(reversed).changes, 0);
}

TEST(MergeDuplicates, TakesLinearTime) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.sin(%x)
      return %y: output 0
    })");
  const ir::Node& sin = graph.node(graph.first_node());
  const ir::OpSpec spec{.op = sin.op(),
                        .operands = {graph.inputs()[0]},
                        .results = {graph.value(sin.results()[0]).type()}};
  for (int i = 0; i < 100000; ++i) graph.add_op(spec);

  // Quadratic would take minutes; all but the first and the returned one merge.
  EXPECT_EQ(merge_duplicates(graph).changes, 99999);
}

}  // namespace
}  // namespace tandem::passes
