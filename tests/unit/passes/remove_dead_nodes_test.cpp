#include "passes/remove_dead_nodes.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

TEST(RemoveDeadNodes, ErasesAChainInOneRun) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %unused: f32[4] = aten.sin(%x)
      %also_unused: f32[4] = aten.cos(%unused)
      %y: f32[4] = aten.exp(%x)
      return %y: output 0
    })");

  PassResult result = remove_dead_nodes(graph);

  EXPECT_EQ(result.changes, 2);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.exp(%x)
      return %y: output 0
    })");
}

// Dropping the draw would shift the random stream of every later op.
TEST(RemoveDeadNodes, KeepsARandomDrawThatNobodyReads) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0) {
      %base: f32[4] = aten.sin(%x)
      %draw: f32[4] = aten.bernoulli.p(%base, 0.5, generator=none)
      return %x: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_dead_nodes(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

// Eager raises where an index is out of range or a divisor zero, read or not.
TEST(RemoveDeadNodes, KeepsWhatMayRaise) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0, %i: i64[2] user_input 1, %z: f32[4, 4] user_input 2) {
      %picked: f32[2] = aten.index_select(%x, 0, %i)
      %rest: i64[2] = aten.remainder.Tensor(%i, %i)
      %zero: i64[2] = aten.remainder.Scalar(%i, 0)
      %inverse: f32[4, 4], %info: i32[] = aten.linalg_inv_ex(%z, check_errors=true)
      return %x: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_dead_nodes(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

// Whether the memory goes on behind the operand only the call knows.
TEST(RemoveDeadNodes, KeepsAStridedViewBeyondItsOperand) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %within: f32[2] (2) = aten.as_strided(%x, [2], [2], 1)
      %beyond: f32[2] (2) = aten.as_strided(%x, [2], [2], 2)
      return %x: output 0
    })");

  EXPECT_EQ(remove_dead_nodes(graph).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %beyond: f32[2] (2) = aten.as_strided(%x, [2], [2], 2)
      return %x: output 0
    })");
}

// The kernel of another backend may wrap a number that eager's refuses: it is left to eager's.
TEST(RemoveDeadNodes, KeepsANumberThatDoesNotFit) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: i32[4] user_input 0) {
      %fits: i32[4] = aten.fill.Scalar(%x, 7)
      %beyond: i32[4] = aten.fill.Scalar(%x, 3000000000.0)
      return %x: output 0
    })");

  EXPECT_EQ(remove_dead_nodes(graph).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: i32[4] user_input 0) {
      %beyond: i32[4] = aten.fill.Scalar(%x, 3000000000.0)
      return %x: output 0
    })");
}

TEST(RemoveDeadNodes, ErasesWhatCannotRaiseHere) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0, %i: i64[2] user_input 1, %z: f32[4, 4] user_input 2, %dy: f32[2] tangent 0) {
      %rest: f32[4] = aten.remainder.Tensor(%x, %x)
      %odd: i64[2] = aten.remainder.Scalar(%i, 2)
      %inverse: f32[4, 4], %info: i32[] = aten.linalg_inv_ex(%z, check_errors=false)
      backward:
      %picked: f32[2] = aten.index_select(%dy, 0, %i)
      return %x: output 0
    })");

  EXPECT_EQ(remove_dead_nodes(graph).changes, 4);
}

// The error stays, what reads its result goes.
TEST(RemoveDeadNodes, ErasesWhatReadsAResultOfWhatMayRaise) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0, %i: i64[2] user_input 1) {
      %picked: f32[2] = aten.index_select(%x, 0, %i)
      %wave: f32[2] = aten.sin(%picked)
      return %x: output 0
    })");

  EXPECT_EQ(remove_dead_nodes(graph).changes, 1);
}

TEST(RemoveDeadNodes, KeepsAWriteThatNobodyReads) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      %written: f32[4] = aten.copy_(%x, %y, false)
      return %y: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_dead_nodes(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

TEST(RemoveDeadNodes, KeepsANodeOfWhichOneResultIsRead) {
  constexpr char text[] = R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %values: f32[4], %places: i64[4] = aten.max.dim(%x, 1, false)
      return %places: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_dead_nodes(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

TEST(RemoveDeadNodes, ErasesAConstantThatNobodyReads) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[2] user_input 0) {
      return %x: output 0
    })");
  graph.add_constant(torch::ones({2}), "unused");

  EXPECT_EQ(remove_dead_nodes(graph).changes, 1);
  EXPECT_EQ(graph.node_count(), 0u);
}

TEST(RemoveDeadNodes, ErasesARegionOnlyIfNothingInItMustStay) {
  ir::Graph pure = ir::parse(R"(
    graph body(%a: f32[4] user_input 0) {
      %b: f32[4] = aten.sin(%a)
      return %b: output 0
    })");
  ir::Graph drawing = ir::parse(R"(
    graph body(%a: f32[4] user_input 0) {
      %b: f32[4] = aten.bernoulli.p(%a, 0.5, generator=none)
      return %b: output 0
    })");
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      return %x: output 0
    })");
  const ir::ValueId x = graph.inputs()[0];
  const ir::NodeId dead = graph.add_region(pure, {x}, "checkpoint", ir::Phase::Forward).id();
  const ir::NodeId kept = graph.add_region(drawing, {x}, "checkpoint", ir::Phase::Forward).id();

  EXPECT_EQ(remove_dead_nodes(graph).changes, 1);
  EXPECT_TRUE(graph.node(dead).erased());
  EXPECT_FALSE(graph.node(kept).erased());
}

}  // namespace
}  // namespace tandem::passes
