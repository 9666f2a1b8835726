#include "passes/fold_constants.h"

#include "passes/remove_dead_nodes.h"
#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::passes {
namespace {

void expect_unchanged(const char* text) {
  ir::Graph graph = ir::parse(text);
  EXPECT_EQ(fold_constants(graph).changes, 0) << ir::print(graph);
  EXPECT_GRAPH_EQ(graph, text);
}

/// Without what is dead after it.
void expect_becomes(const char* text, const char* expected) {
  ir::Graph graph = ir::parse(text);
  EXPECT_GT(fold_constants(graph).changes, 0);
  remove_dead_nodes(graph);
  EXPECT_TRUE(ir::violations(graph).empty());
  EXPECT_GRAPH_EQ(graph, expected) << ir::print(graph);
  EXPECT_EQ(fold_constants(graph).changes, 0) << "the second run finds nothing";
}

TEST(FoldConstants, ComputesWhatDependsOnNoInput) {
  expect_becomes(R"(
    graph g(%x: f32[3] user_input 0) {
      %a: i64[3] = aten.arange(3, dtype=none, layout=none, device=cpu, pin_memory=none)
      %b: f32[3] = aten._to_copy(%a, dtype=f32, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %c: f32[3] = aten.exp(%b)
      %y: f32[3] = aten.mul.Tensor(%x, %c)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[3] user_input 0) {
      %c: f32[3] = constant {1.0, 2.7182817, 7.389056}
      %y: f32[3] = aten.mul.Tensor(%x, %c)
      return %y: output 0
    })");
}

TEST(FoldConstants, TakesLibtorchsOwnNumbers) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[20] user_input 0) {
      %a: f32[20] = aten.arange.start_step(0.1, 2.1, 0.1, dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[20] = aten.sin(%a)
      %y: f32[20] = aten.mul.Tensor(%x, %b)
      return %y: output 0
    })");
  fold_constants(graph);
  remove_dead_nodes(graph);

  const ir::Node& folded = graph.node(graph.first_node());
  ASSERT_EQ(folded.kind(), ir::NodeKind::Constant);
  EXPECT_TRUE(at::equal(folded.constant(), torch::arange(0.1, 2.1, 0.1, torch::kFloat).sin()));
}

// Sizes are known at compile time, data is not.
TEST(FoldConstants, AFactoryReadsSizesOnly) {
  expect_becomes(R"(
    graph g(%x: f32[2] user_input 0) {
      %a: f32[2] = aten.ones_like(%x, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %b: f32[2] = aten.mul.Scalar(%a, 3)
      %y: f32[2] = aten.mul.Tensor(%x, %b)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[2] user_input 0) {
      %b: f32[2] = constant {3.0, 3.0}
      %y: f32[2] = aten.mul.Tensor(%x, %b)
      return %y: output 0
    })");
}

TEST(FoldConstants, LargeTensorsOfOneNumberBecomeOneFill) {
  expect_becomes(R"(
    graph g(%x: f32[100, 100] user_input 0) {
      %a: f32[100, 100] = aten.ones([100, 100], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[100, 100] = aten.mul.Scalar(%a, 0.1)
      %c: f32[100] = aten.zeros([100], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %d: f32[100, 100] (0, 1) = aten.expand(%c, [100, 100], implicit=false)
      %e: f32[100, 100] = aten.sub.Tensor(%d, %b, alpha=1)
      %y: f32[100, 100] = aten.mul.Tensor(%x, %e)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[100, 100] user_input 0) {
      %e: f32[100, 100] = aten.full([100, 100], -0.10000000149011612, dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %y: f32[100, 100] = aten.mul.Tensor(%x, %e)
      return %y: output 0
    })");
}

// A vector's elements and its last few are rounded by different code: the fill could be wrong.
TEST(FoldConstants, LargeTensorsAreLeftToOpsThatMayRoundInAnotherWay) {
  expect_unchanged(R"(
    graph g(%x: f32[100, 100] user_input 0) {
      %a: f32[100, 100] = aten.ones([100, 100], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[100, 100] = aten.exp(%a)
      %c: f32[100, 100] = aten.add.Tensor(%a, %a, alpha=3)
      %d: f32[100, 100] = aten.mul.Tensor(%b, %c)
      %y: f32[100, 100] = aten.mul.Tensor(%x, %d)
      return %y: output 0
    })");
}

TEST(FoldConstants, KeepsDrawsAndMemoryAsItIs) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0) {
      %a: f32[2] = aten.rand([2], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[2] = aten.empty.memory_format([2], dtype=f32, layout=none, device=cpu, pin_memory=none, memory_format=none)
      %c: f32[2] = aten.mul.Tensor(%a, %b)
      %y: f32[2] = aten.mul.Tensor(%x, %c)
      return %y: output 0
    })");
}

// The caller may write to it, and gets a new one in the next call.
TEST(FoldConstants, KeepsWhatTheCallerReceives) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0) {
      %a: f32[4] = aten.ones([4], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[2, 2] = aten.view(%a, [2, 2])
      return %b: output 0
    })");
}

// The backward without this tangent must not have it: it depends on the tangent, if only on sizes.
TEST(FoldConstants, KeepsWhatDependsOnATangent) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0, %dy: f32[2] tangent 0) {
      %y: f32[2] = aten.exp(%x)
      backward:
      %a: f32[2] = aten.ones_like(%dy, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %dx: f32[2] = aten.mul.Tensor(%a, %y)
      return %y: output 0, %dx: grad 0
    })");
}

// It raises in the call, as in eager.
TEST(FoldConstants, KeepsWhatRaises) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0) {
      %a: i64[1] = constant {5}
      %b: f32[2] = constant {1.0, 2.0}
      %c: f32[1] = aten.index_select(%b, 0, %a)
      %y: f32[2] = aten.mul.Tensor(%x, %c)
      return %y: output 0
    })");
}

// Zeros that have no memory: autograd's own, for zeros that nobody is to compute with.
TEST(FoldConstants, KeepsZerosWithoutMemory) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0) {
      %a: f32[2] = aten._efficientzerotensor([2], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %y: f32[2] = aten.mul.Tensor(%x, %a)
      return %y: output 0
    })");
}

TEST(FoldConstants, LargeComputedTensorsAreNotKept) {
  expect_unchanged(R"(
    graph g(%x: f32[100, 100] user_input 0) {
      %a: i64[10000] = aten.arange(10000, dtype=none, layout=none, device=cpu, pin_memory=none)
      %b: f32[10000] = aten._to_copy(%a, dtype=f32, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %c: f32[100, 100] = aten.view(%b, [100, 100])
      %y: f32[100, 100] = aten.mul.Tensor(%x, %c)
      return %y: output 0
    })");
}

}  // namespace
}  // namespace tandem::passes
