#include "passes/remove_round_trips.h"

#include "passes/remove_dead_nodes.h"
#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

void expect_unchanged(const char* text) {
  ir::Graph graph = ir::parse(text);
  EXPECT_EQ(remove_round_trips(graph).changes, 0) << ir::print(graph);
  EXPECT_GRAPH_EQ(graph, text);
}

/// Without what is dead after it.
void expect_becomes(const char* text, const char* expected) {
  ir::Graph graph = ir::parse(text);
  EXPECT_GT(remove_round_trips(graph).changes, 0);
  remove_dead_nodes(graph);
  EXPECT_TRUE(ir::violations(graph).empty());
  EXPECT_GRAPH_EQ(graph, expected) << ir::print(graph);
  EXPECT_EQ(remove_round_trips(graph).changes, 0) << "the second run finds nothing";
}

TEST(RemoveRoundTrips, APartThatWasPutIsThePart) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[2] user_input 1) {
      %a: f32[2] = aten.exp(%z)
      %b: f32[4, 2] = aten.select_scatter(%x, %a, 0, 1)
      %c: f32[2] = aten.select.int(%b, 0, 1)
      %y: f32[2] = aten.exp(%c)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[2] user_input 1) {
      %a: f32[2] = aten.exp(%z)
      %y: f32[2] = aten.exp(%a)
      return %y: output 0
    })");
}

TEST(RemoveRoundTrips, APartBesideThatWhichWasPutIsThatOfTheBase) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[1, 2] user_input 1) {
      %h: f32[4, 2] = aten.exp(%x)
      %b: f32[4, 2] = aten.slice_scatter(%h, %z, 0, 3, 4, 1)
      %c: f32[4, 2] = aten.slice_scatter(%b, %z, 0, 0, 1, 1)
      %d: f32[2, 2] = aten.slice.Tensor(%c, 0, 1, 3, 1)
      %y: f32[2, 2] = aten.exp(%d)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[1, 2] user_input 1) {
      %h: f32[4, 2] = aten.exp(%x)
      %d: f32[2, 2] = aten.slice.Tensor(%h, 0, 1, 3, 1)
      %y: f32[2, 2] = aten.exp(%d)
      return %y: output 0
    })");
}

// Other strides than the part that was put, and a part that overlaps what was put.
TEST(RemoveRoundTrips, KeepsPartsThatDiffer) {
  expect_unchanged(R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[4] user_input 1, %v: f32[2, 2] user_input 2) {
      %b: f32[4, 2] = aten.select_scatter(%x, %z, 1, 0)
      %c: f32[4] (2) = aten.select.int(%b, 1, 0)
      %d: f32[4, 2] = aten.slice_scatter(%x, %v, 0, 1, 3, 1)
      %e: f32[2, 2] = aten.slice.Tensor(%d, 0, 2, 4, 1)
      %f: f32[4] = aten.exp(%c)
      %g: f32[2, 2] = aten.exp(%e)
      return %f: output 0, %g: output 1
    })");
}

TEST(RemoveRoundTrips, APartThatIsPutBackChangesNothing) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %h: f32[4, 2] = aten.exp(%x)
      %a: f32[4] (2) = aten.select.int(%h, 1, 0)
      %b: f32[4, 2] = aten.select_scatter(%h, %a, 1, 0)
      %y: f32[4, 2] = aten.exp(%b)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %h: f32[4, 2] = aten.exp(%x)
      %y: f32[4, 2] = aten.exp(%h)
      return %y: output 0
    })");
}

TEST(RemoveRoundTrips, APartThatIsOverwrittenNeedNotBePut) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0, %a: f32[4] user_input 1, %b: f32[4] user_input 2) {
      %c: f32[4, 2] = aten.select_scatter(%x, %a, 1, 0)
      %d: f32[4, 2] = aten.select_scatter(%c, %b, 1, 0)
      return %d: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0, %a: f32[4] user_input 1, %b: f32[4] user_input 2) {
      %d: f32[4, 2] = aten.select_scatter(%x, %b, 1, 0)
      return %d: output 0
    })");
}

TEST(RemoveRoundTrips, ACopyOverSomethingIsACopy) {
  expect_becomes(R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[4, 2] (1, 4) user_input 1, %i: i64[4, 2] user_input 2) {
      %a: f32[4, 2] = aten.copy(%x, %z, false)
      %b: f32[4, 2] = aten.copy(%x, %i, false)
      return %a: mutated 0, %b: output 0
    })",
                 R"(
    graph g(%x: f32[4, 2] user_input 0, %z: f32[4, 2] (1, 4) user_input 1, %i: i64[4, 2] user_input 2) {
      %a: f32[4, 2] = aten.clone(%z, memory_format=contiguous)
      %b: f32[4, 2] = aten._to_copy(%i, dtype=f32, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=contiguous)
      return %a: mutated 0, %b: output 0
    })");
}

TEST(RemoveRoundTrips, AllPiecesOfASplitAreTheWhole) {
  expect_becomes(R"(
    graph g(%x: f32[4, 6] user_input 0) {
      %h: f32[4, 6] = aten.exp(%x)
      [%a: f32[4, 2] (6, 1), %b: f32[4, 4] (6, 1)] = aten.split_with_sizes(%h, [2, 4], 1)
      %c: f32[4, 6] = aten.cat([%a, %b], -1)
      %y: f32[4, 6] = aten.exp(%c)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4, 6] user_input 0) {
      %h: f32[4, 6] = aten.exp(%x)
      %y: f32[4, 6] = aten.exp(%h)
      return %y: output 0
    })");
}

TEST(RemoveRoundTrips, APieceThatIsReturnedIsCopied) {
  expect_becomes(R"(
    graph g(%x: f32[4, 6] user_input 0) {
      [%a: f32[4, 2] (6, 1), %b: f32[4, 4] (6, 1)] = aten.split_with_sizes(%x, [2, 4], 1)
      %c: f32[4, 6] = aten.cat([%a, %b], 1)
      return %c: output 0
    })",
                 R"(
    graph g(%x: f32[4, 6] user_input 0) {
      %c: f32[4, 6] = aten.clone(%x, memory_format=contiguous)
      return %c: output 0
    })");
}

TEST(RemoveRoundTrips, ThePiecesOfACatAreWhatItWasMadeOf) {
  expect_becomes(R"(
    graph g(%x: f32[2, 3] user_input 0, %z: f32[4, 3] user_input 1) {
      %c: f32[6, 3] = aten.cat([%x, %z], 0)
      [%a: f32[2, 3], %b: f32[4, 3]] = aten.split_with_sizes(%c, [2, 4], 0)
      %p: f32[2, 3] = aten.exp(%a)
      %q: f32[4, 3] = aten.exp(%b)
      return %p: output 0, %q: output 1
    })",
                 R"(
    graph g(%x: f32[2, 3] user_input 0, %z: f32[4, 3] user_input 1) {
      %p: f32[2, 3] = aten.exp(%x)
      %q: f32[4, 3] = aten.exp(%z)
      return %p: output 0, %q: output 1
    })");
}

TEST(RemoveRoundTrips, KeepsPiecesThatAreOthers) {
  expect_unchanged(R"(
    graph g(%x: f32[4, 4] user_input 0, %z: f32[2, 3] user_input 1, %v: f32[4, 3] user_input 2) {
      [%a: f32[2, 4], %b: f32[2, 4]] = aten.split.Tensor(%x, 2, 0)
      %c: f32[4, 4] = aten.cat([%b, %a], 0)
      %d: f32[2, 8] = aten.cat([%a, %b], 1)
      %e: f32[6, 3] = aten.cat([%z, %v], 0)
      [%f: f32[3, 3], %g: f32[3, 3]] = aten.split.Tensor(%e, 3, 0)
      %p: f32[3, 3] = aten.exp(%f)
      %q: f32[3, 3] = aten.exp(%g)
      return %c: output 0, %d: output 1, %p: output 2, %q: output 3
    })");
}

TEST(RemoveRoundTrips, AWiderDtypeAndBackIsTheSource) {
  expect_becomes(R"(
    graph g(%x: bf16[4] user_input 0) {
      %a: f32[4] = aten._to_copy(%x, dtype=f32, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %b: bf16[4] = aten._to_copy(%a, dtype=bf16, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %c: f64[4] = aten._to_copy(%a, dtype=f64, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %y: bf16[4] = aten.exp(%b)
      return %y: output 0, %c: output 1
    })",
                 R"(
    graph g(%x: bf16[4] user_input 0) {
      %c: f64[4] = aten._to_copy(%x, dtype=f64, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %y: bf16[4] = aten.exp(%x)
      return %y: output 0, %c: output 1
    })");
}

// What the narrower dtype rounds stays rounded.
TEST(RemoveRoundTrips, KeepsACastThatRounds) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: bf16[4] = aten._to_copy(%x, dtype=bf16, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %b: f32[4] = aten._to_copy(%a, dtype=f32, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
      %y: f32[4] = aten.exp(%b)
      return %y: output 0
    })");
}

TEST(RemoveRoundTrips, ASignChangedTwiceIsTheSource) {
  expect_becomes(R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.neg(%x)
      %b: f32[4] = aten.neg(%a)
      %y: f32[4] = aten.exp(%b)
      return %y: output 0
    })",
                 R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.exp(%x)
      return %y: output 0
    })");
}

// Eager keeps the copy for the backward; the caller may write to the argument meanwhile.
TEST(RemoveRoundTrips, KeepsACopyOfAnArgumentThatTheBackwardReads) {
  expect_unchanged(R"(
    graph g(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %a: f32[4] = aten.neg(%x)
      %b: f32[4] = aten.neg(%a)
      %y: f32[4] = aten.exp(%b)
      backward:
      %dx: f32[4] = aten.mul.Tensor(%dy, %b)
      return %y: output 0, %dx: grad 0
    })");
}

// The same of a part: what was put into memory of the call's own is read there.
TEST(RemoveRoundTrips, KeepsAPartOfTheCallsOwnThatTheBackwardReads) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0, %z: f32[4, 2] user_input 1, %dy: f32[2] tangent 0) {
      %a: f32[4, 2] = aten.select_scatter(%z, %x, 0, 1)
      %y: f32[4, 2] = aten.exp(%a)
      backward:
      %b: f32[2] = aten.select.int(%a, 0, 1)
      %dx: f32[2] = aten.mul.Tensor(%dy, %b)
      return %y: output 0, %dx: grad 0
    })");
}

// Without the tangent the backward leaves out all that depends on it: so must the part.
TEST(RemoveRoundTrips, KeepsEveryDependenceOnATangent) {
  expect_unchanged(R"(
    graph g(%x: f32[2] user_input 0, %dy: f32[4, 2] tangent 0) {
      %y: f32[2] = aten.exp(%x)
      backward:
      %a: f32[4, 2] = aten.select_scatter(%dy, %y, 0, 1)
      %b: f32[2] = aten.select.int(%a, 0, 1)
      %c: f32[2] = aten.mul.Tensor(%b, %b)
      return %y: output 0, %c: grad 0
    })");
}

}  // namespace
}  // namespace tandem::passes
