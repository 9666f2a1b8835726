#include "passes/merge_views.h"

#include "passes/remove_dead_nodes.h"
#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

void expect_unchanged(const char* text) {
  ir::Graph graph = ir::parse(text);
  EXPECT_EQ(merge_views(graph).changes, 0) << ir::print(graph);
  EXPECT_GRAPH_EQ(graph, text);
}

/// Without what is dead after it.
void expect_becomes(const char* text, const char* expected) {
  ir::Graph graph = ir::parse(text);
  EXPECT_GT(merge_views(graph).changes, 0);
  remove_dead_nodes(graph);
  EXPECT_TRUE(ir::violations(graph).empty());
  EXPECT_GRAPH_EQ(graph, expected) << ir::print(graph);
  EXPECT_EQ(merge_views(graph).changes, 0) << "the second run finds nothing";
}

TEST(MergeViews, AViewAndItsInverseAreTheSource) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[2, 4] (1, 2) = aten.t(%x)
      %b: f32[4, 2] = aten.t(%a)
      %c: f32[8] = aten.view(%b, [8])
      %d: f32[4, 2] = aten._unsafe_view(%c, [4, 2])
      %e: f32[1, 4, 2] = aten.unsqueeze(%d, 0)
      %f: f32[4, 2] = aten.squeeze.dim(%e, 0)
      %y: f32[4, 2] = aten.exp(%f)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %y: f32[4, 2] = aten.exp(%x)
      return %y: output 0
    })");
}

TEST(MergeViews, DifferentOpsThatShowTheSameAreOne) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[2] = aten.select.int(%x, 0, 3)
      %b: f32[4, 2] = aten.slice.Tensor(%x, 0, 0, 9223372036854775807, 1)
      %c: f32[1, 2] = aten.slice.Tensor(%b, 0, -1, 4, 1)
      %d: f32[2] = aten.squeeze.dim(%c, 0)
      [%e: f32[2], %f: f32[2], %g: f32[2], %h: f32[2]] = aten.unbind.int(%x, 0)
      %i: f32[2] = aten.mul.Tensor(%a, %d)
      %y: f32[2] = aten.mul.Tensor(%i, %h)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[2] = aten.select.int(%x, 0, 3)
      %i: f32[2] = aten.mul.Tensor(%a, %a)
      %y: f32[2] = aten.mul.Tensor(%i, %a)
      return %y: output 0
    })");
}

TEST(MergeViews, DiagonalsAreOneIfTheyBeginAtTheSameElement) {
  // Above and below the middle they start in another row or column, here with equal strides.
  expect_becomes(R"(
    graph g(%x: f32[3, 3] user_input 0) {
      %a: f32[2] (4) = aten.diagonal(%x, 1, 0, 1)
      %b: f32[2] (4) = aten.diagonal(%x, -1, 0, 1)
      %c: f32[2] (4) = aten.diagonal(%x, -1, 1, 0)
      %d: f32[2] = aten.mul.Tensor(%a, %b)
      %y: f32[2] = aten.mul.Tensor(%d, %c)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[3, 3] user_input 0) {
      %a: f32[2] (4) = aten.diagonal(%x, 1, 0, 1)
      %b: f32[2] (4) = aten.diagonal(%x, -1, 0, 1)
      %d: f32[2] = aten.mul.Tensor(%a, %b)
      %y: f32[2] = aten.mul.Tensor(%d, %a)
      return %y: output 0
    })");
}

TEST(MergeViews, PiecesOfASplitAreFoundOneByOne) {
  expect_becomes(R"(
    graph g(%x: f32[6, 2] user_input 0) {
      [%a: f32[2, 2], %b: f32[2, 2], %c: f32[2, 2]] = aten.split.Tensor(%x, 2, 0)
      [%d: f32[2, 2], %e: f32[4, 2]] = aten.split_with_sizes(%x, [2, 4], 0)
      %f: f32[2, 2] = aten.slice.Tensor(%e, 0, 2, 4, 1)
      %g: f32[2, 2] = aten.mul.Tensor(%a, %d)
      %h: f32[2, 2] = aten.mul.Tensor(%c, %f)
      %y: f32[2, 2] = aten.mul.Tensor(%g, %h)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[6, 2] user_input 0) {
      [%a: f32[2, 2], %b: f32[2, 2], %c: f32[2, 2]] = aten.split.Tensor(%x, 2, 0)
      %g: f32[2, 2] = aten.mul.Tensor(%a, %a)
      %h: f32[2, 2] = aten.mul.Tensor(%c, %c)
      %y: f32[2, 2] = aten.mul.Tensor(%g, %h)
      return %y: output 0
    })");
}

// All pieces of an expanded tensor show the same elements: the first one stands for the others.
TEST(MergeViews, PiecesOfAnExpandedTensorAreOne) {
  expect_becomes(R"(
    graph g(%x: f32[2, 3] (0, 1) user_input 0) {
      [%a: f32[3], %b: f32[3]] = aten.unbind.int(%x, 0)
      %y: f32[3] = aten.exp(%b)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[2, 3] (0, 1) user_input 0) {
      [%a: f32[3], %b: f32[3]] = aten.unbind.int(%x, 0)
      %y: f32[3] = aten.exp(%a)
      return %y: output 0
    })");
}

TEST(MergeViews, ChainsAreTakenFromTheirSource) {
  expect_becomes(R"(
    graph g(%x: f32[4, 6] user_input 0, %z: f32[2] user_input 1) {
      %a: f32[24] = aten.view(%x, [24])
      %b: f32[2, 12] = aten.view(%a, [2, 12])
      %c: f32[1, 2] = aten.unsqueeze(%z, 0)
      %d: f32[12, 2] (0, 1) = aten.expand(%c, [12, 2], implicit=false)
      %e: f32[2, 12] (1, 0) = aten.t(%d)
      %y: f32[2, 12] = aten.mul.Tensor(%b, %e)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 6] user_input 0, %z: f32[2] user_input 1) {
      %b: f32[2, 12] = aten.view(%x, [2, 12])
      %d: f32[12, 2] (0, 1) = aten.expand(%z, [12, 2], implicit=false)
      %e: f32[2, 12] (1, 0) = aten.t(%d)
      %y: f32[2, 12] = aten.mul.Tensor(%b, %e)
      return %y: output 0
    })");
}

TEST(MergeViews, TwoTranspositionsAreOne) {
  expect_becomes(R"(
    graph g(%x: f32[2, 3, 4] user_input 0) {
      %a: f32[3, 2, 4] (4, 12, 1) = aten.transpose.int(%x, 0, 1)
      %b: f32[3, 4, 2] (4, 1, 12) = aten.transpose.int(%a, -1, -2)
      %y: f32[3, 4, 2] (4, 1, 12) = aten.exp(%b)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[2, 3, 4] user_input 0) {
      %b: f32[3, 4, 2] (4, 1, 12) = aten.permute(%x, [1, 2, 0])
      %y: f32[3, 4, 2] (4, 1, 12) = aten.exp(%b)
      return %y: output 0
    })");
}

// Same sizes, other strides: whoever reads it would give its result other strides.
TEST(MergeViews, KeepsAnotherLayoutApart) {
  expect_unchanged(R"(
    graph g(%x: f32[2, 2] user_input 0) {
      %a: f32[2, 2] (1, 2) = aten.t(%x)
      %y: f32[2, 2] (1, 2) = aten.exp(%a)
      return %y: output 0
    })");
}

// Same type, other elements.
TEST(MergeViews, KeepsOtherElementsApart) {
  expect_unchanged(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[2] = aten.select.int(%x, 0, 0)
      %b: f32[2] = aten.select.int(%x, 0, 1)
      %c: f32[2] (2) = aten.slice.Tensor(%x, 0, 0, 2, 1)
      %y: f32[2] = aten.mul.Tensor(%a, %b)
      return %y: output 0, %c: output 1
    })");
}

// A view that still has to conjugate what it shows, and one that counts from the start of the
// storage, wherever its operand lies in it.
TEST(MergeViews, KeepsViewsThatShowMoreThanMemory) {
  expect_unchanged(R"(
    graph g(%x: c64[2] user_input 0, %z: f32[4] user_input 1) {
      %a: c64[2] = aten._conj(%x)
      %b: c64[2] = aten.mul.Tensor(%a, %x)
      %c: f32[4] = aten.as_strided(%z, [4], [1], 0)
      %d: f32[4] = aten.mul.Tensor(%c, %z)
      return %b: output 0, %d: output 1
    })");
}

// The caller may write to what it gets, and an argument is another tensor than a result.
TEST(MergeViews, NeverReturnsAnInputOrOneValueTwice) {
  expect_unchanged(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[8] = aten.view(%x, [8])
      %b: f32[4, 2] = aten.view(%x, [4, 2])
      %c: f32[8] = aten.view(%x, [8])
      return %a: output 0, %b: output 1, %c: output 2
    })");
}

TEST(MergeViews, LetsABackwardViewGiveWayToAForwardOneOnly) {
  expect_becomes(R"(
    graph g(%w: f32[3, 2] param "w", %x: f32[4, 2] user_input 0, %dy: f32[4, 3] tangent 0) {
      %t: f32[2, 3] (1, 2) = aten.t(%w)
      %y: f32[4, 3] = aten.mm(%x, %t)
      backward:
      %u: f32[2, 3] (1, 2) = aten.transpose.int(%w, 0, 1)
      %v: f32[3, 2] = aten.t(%u)
      %dx: f32[4, 2] = aten.mm(%dy, %v)
      return %y: output 0, none: grad 0, %dx: grad 1
    })",
                 R"(
    graph g(%w: f32[3, 2] param "w", %x: f32[4, 2] user_input 0, %dy: f32[4, 3] tangent 0) {
      %t: f32[2, 3] (1, 2) = aten.t(%w)
      %y: f32[4, 3] = aten.mm(%x, %t)
      backward:
      %dx: f32[4, 2] = aten.mm(%dy, %w)
      return %y: output 0, none: grad 0, %dx: grad 1
    })");

  ir::Graph reversed = ir::parse(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[2, 4] (1, 2) = aten.t(%x)
      %b: f32[2, 4] (1, 2) = aten.t(%x)
      %y: f32[2, 4] (1, 2) = aten.mul.Tensor(%a, %b)
      return %y: output 0
    })");
  reversed.set_phase(reversed.node(reversed.first_node()), ir::Phase::Backward);
  EXPECT_EQ(merge_views(reversed).changes, 0);
}

TEST(MergeViews, TakesLinearTime) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 4] user_input 0) {
      %a: f32[4, 4] (1, 4) = aten.t(%x)
      %y: f32[4, 4] (1, 4) = aten.exp(%a)
      return %y: output 0
    })");
  const ir::Node& t = graph.node(graph.first_node());
  const ir::Node& exp = graph.node(graph.next(t.id()));
  const ir::Type type = graph.value(t.results()[0]).type();
  const ir::Type straight = graph.value(graph.inputs()[0]).type();
  ir::ValueId last = graph.inputs()[0];
  for (int i = 0; i < 100000; ++i) {
    last = graph.add_op({.op = t.op(), .operands = {last}, .results = {i % 2 ? straight : type}})
               .results()[0];
  }
  graph.add_output(
      graph.add_op({.op = exp.op(), .operands = {last}, .results = {straight}}).results()[0],
      ir::Descriptor::output(1));

  // Quadratic would take minutes.
  EXPECT_GE(merge_views(graph).changes, 99999);
  remove_dead_nodes(graph);
  EXPECT_EQ(graph.node_count(), 3u);
}

}  // namespace
}  // namespace tandem::passes
