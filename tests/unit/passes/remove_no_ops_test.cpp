#include "passes/remove_no_ops.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

TEST(RemoveNoOps, ErasesCallsThatReturnTheirOperand) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[4, 2] = aten.alias(%x)
      %b: f32[4, 2] = aten.detach(%a)
      %c: f32[4, 2] = aten.view(%b, [4, 2])
      %d: f32[4, 2] = aten.expand(%c, [4, 2], implicit=false)
      %y: f32[4, 2] = aten.exp(%d)
      return %y: output 0
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 4);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %y: f32[4, 2] = aten.exp(%x)
      return %y: output 0
    })");
}

TEST(RemoveNoOps, KeepsAViewThatChangesTheType) {
  constexpr char text[] = R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[8] = aten.view(%x, [8])
      %y: f32[8] = aten.exp(%a)
      return %y: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

// Same type, other elements.
TEST(RemoveNoOps, KeepsASliceThatKeepsTheType) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] (2) user_input 0) {
      %a: f32[4] (2) = aten.as_strided(%x, [4], [2], 1)
      %y: f32[4] = aten.exp(%a)
      return %y: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

// A result that is another tensor object in eager must not become the argument itself.
TEST(RemoveNoOps, NeverMakesAnOutputAnInput) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.alias(%x)
      return %a: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

TEST(RemoveNoOps, NeverReturnsOneValueTwice) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.exp(%x)
      %a: f32[4] = aten.alias(%y)
      %b: f32[4] = aten.alias(%y)
      return %a: output 0, %b: output 1
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.exp(%x)
      %b: f32[4] = aten.alias(%y)
      return %y: output 0, %b: output 1
    })");
}

TEST(RemoveNoOps, ErasesCopiesThatNobodyCanTellFromTheOriginal) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 2] user_input 0, %i: i64[2] user_input 1) {
      %a: f32[4, 2] = aten.clone(%x, memory_format=none)
      %b: f32[4, 2] = aten.repeat(%a, [1, 1])
      %c: f32[4, 2] = aten.constant_pad_nd(%b, [0, 0], 1.0)
      %d: f32[4, 2] = aten.cat([%c], 0)
      %e: f32[4, 2] = aten.slice_scatter(%x, %d, 0, 0, 4, 1)
      %f: f32[4, 2] = aten.pow.Tensor_Scalar(%e, 1.0)
      %g: f32[4, 2] = aten.copy(%x, %f, false)
      %y: f32[4, 2] = aten.exp(%g)
      %j: i64[2] = aten.floor(%i)
      %k: i64[2] = aten.add.Scalar(%j, 0, 1)
      %z: i64[2] = aten.neg(%k)
      return %y: output 0, %z: output 1
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 9) << ir::print(graph);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4, 2] user_input 0, %i: i64[2] user_input 1) {
      %y: f32[4, 2] = aten.exp(%x)
      %z: i64[2] = aten.neg(%i)
      return %y: output 0, %z: output 1
    })");
}

TEST(RemoveNoOps, ErasesArithmeticThatKeepsEveryBit) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[2, 2] user_input 0) {
      %one: f32[] = constant {1.0}
      %ones: f32[2, 2] = aten.ones([2, 2], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %a: f32[2, 2] = aten.mul.Scalar(%x, 1)
      %b: f32[2, 2] = aten.mul.Tensor(%one, %a)
      %c: f32[2, 2] = aten.div.Tensor(%b, %ones)
      %d: f32[2, 2] = aten.sub.Scalar(%c, 0, 1)
      %e: f32[2, 2] = aten.add.Scalar(%d, -0.0, 1)
      %y: f32[2, 2] = aten.exp(%e)
      return %y: output 0
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 5) << ir::print(graph);
}

// -0 + 0 is 0, and so is -0 - -0. Infinity times 1 + 0i has a part that is not a number. A number
// of another dtype changes the result's.
TEST(RemoveNoOps, KeepsArithmeticThatChangesABit) {
  constexpr char text[] = R"(
    graph g(%x: f32[2] user_input 0, %c: c64[2] user_input 1, %i: i64[2] user_input 2) {
      %a: f32[2] = aten.add.Scalar(%x, 0, 1)
      %b: f32[2] = aten.sub.Scalar(%a, -0.0, 1)
      %d: c64[2] = aten.mul.Scalar(%c, 1)
      %e: f32[2] = aten.mul.Scalar(%i, 1.0)
      %f: f32[2] = aten.div.Scalar(%i, 1)
      %p: f32[2] = aten.exp(%b)
      %q: c64[2] = aten.exp(%d)
      %r: f32[2] = aten.mul.Tensor(%e, %f)
      return %p: output 0, %q: output 1, %r: output 2
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

// The caller may write to the argument, or to the result.
TEST(RemoveNoOps, KeepsACopyThatTheCallerReceives) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.clone(%x, memory_format=none)
      %b: f32[2, 2] = aten.view(%a, [2, 2])
      return %b: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

// Between the two halves the caller may write to its argument; eager reads the copy.
TEST(RemoveNoOps, KeepsACopyOfAnArgumentThatTheBackwardReads) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %a: f32[4] = aten.clone(%x, memory_format=none)
      %y: f32[4] = aten.exp(%a)
      backward:
      %dx: f32[4] = aten.mul.Tensor(%dy, %a)
      return %y: output 0, %dx: grad 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

TEST(RemoveNoOps, ErasesACopyOfTheCallsOwnMemory) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %h: f32[4] = aten.exp(%x)
      %a: f32[4] = aten.clone(%h, memory_format=none)
      %y: f32[4] = aten.exp(%a)
      backward:
      %dx: f32[4] = aten.mul.Tensor(%dy, %a)
      return %y: output 0, %dx: grad 0
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 1);
}

TEST(RemoveNoOps, KeepsACopyThatIsWrittenOrAddressed) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0, %z: f32[4] user_input 1) {
      %a: f32[4] = aten.clone(%x, memory_format=none)
      %written: f32[4] = aten.copy_(%a, %z, false)
      %b: f32[4] = aten.clone(%x, memory_format=none)
      %c: f32[2] = aten.as_strided(%b, [2], [1], 0)
      %y: f32[2] = aten.exp(%c)
      %u: f32[4] = aten.exp(%written)
      return %y: output 0, %u: output 1
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

// select_scatter copies with the storage offset that its operand has: the result would show it.
TEST(RemoveNoOps, KeepsACopyThatAScatterCopiesAgain) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0, %z: f32[] user_input 1) {
      %a: f32[4] = aten.clone(%x, memory_format=none)
      %y: f32[4] = aten.select_scatter(%a, %z, 0, 1)
      return %y: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

// Inputs may be lazy conjugates, which a type does not say, and libtorch shows none as real
// numbers.
TEST(RemoveNoOps, KeepsACopyOfAnInputThatIsShownAsOtherNumbers) {
  constexpr char text[] = R"(
    graph g(%z: c64[4] user_input 0, %x: f32[4] user_input 1) {
      %a: c64[4] = aten.clone(%z, memory_format=none)
      %flat: c64[4] = aten.view(%a, [4])
      %parts: f32[4, 2] = aten.view_as_real(%flat)
      %b: f32[4] = aten.clone(%x, memory_format=none)
      %bits: i32[4] = aten.view.dtype(%b, i32)
      %y: f32[4, 2] = aten.exp(%parts)
      %w: i32[4] = aten.neg(%bits)
      return %y: output 0, %w: output 1
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 1);  // the view
  EXPECT_EQ(graph.node_count(), 6u);
}

TEST(RemoveNoOps, ErasesACopyOfAnIntermediateThatIsShownAsOtherNumbers) {
  ir::Graph graph = ir::parse(R"(
    graph g(%z: c64[4] user_input 0) {
      %e: c64[4] = aten.exp(%z)
      %a: c64[4] = aten.clone(%e, memory_format=none)
      %parts: f32[4, 2] = aten.view_as_real(%a)
      %y: f32[4, 2] = aten.exp(%parts)
      return %y: output 0
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 1);
}

// libtorch's kernels refuse bools.
TEST(RemoveNoOps, KeepsRoundingOfBools) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: bool[4] user_input 0, %i: i64[4] user_input 1) {
      %a: bool[4] = aten.floor(%x)
      %b: i64[4] = aten.floor(%i)
      %y: bool[4] = aten.logical_not(%a)
      %z: i64[4] = aten.neg(%b)
      return %y: output 0, %z: output 1
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 1);
}

// A backward without the first tangent leaves out what depends on it, be it by a factor of one.
TEST(RemoveNoOps, KeepsEveryDependenceOnATangent) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %h: f32[4] = aten.exp(%x)
      %y: f32[4] = aten.exp(%h)
      backward:
      %ones: f32[4] = aten.ones_like(%dy, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %a: f32[4] = aten.mul.Tensor(%h, %ones)
      %dx: f32[4] = aten.mul.Tensor(%a, %a)
      return %y: output 0, %dx: grad 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

}  // namespace
}  // namespace tandem::passes
