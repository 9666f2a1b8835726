#include "partition/tangents/drop_tangents.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::partition {
namespace {

// Two results of a function of `a` and `b`; `a` is used for both.
constexpr char kTwoResults[] = R"(
  graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
    backward:
    %from0: f32[4] = aten.mul.Tensor(%d0, %s)
    %from1: f32[4] = aten.neg(%d1)
    %da: f32[4] = aten.add.Tensor(%from0, %from1, alpha=1)
    %db: f32[4] = aten.mul.Tensor(%from1, %s)
    return %da: grad 0, %db: grad 1, none: grad 2
  })";

TEST(DropTangents, KeepsTheGraphIfAllAreDefined) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoResults), {{true, true}}), kTwoResults);
}

TEST(DropTangents, LeavesTheUndefinedTermOutOfASum) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoResults), {{false, true}}), R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %from1: f32[4] = aten.neg(%d1)
      %db: f32[4] = aten.mul.Tensor(%from1, %s)
      return %from1: grad 0, %db: grad 1, none: grad 2
    })");
}

// Zeros would move parameters under weight decay.
TEST(DropTangents, MakesAGradientUndefinedThatDependsOnNoDefinedTangent) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoResults), {{true, false}}), R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %from0: f32[4] = aten.mul.Tensor(%d0, %s)
      return %from0: grad 0, none: grad 1, none: grad 2
    })");
}

TEST(DropTangents, MakesEveryGradientUndefinedIfNoTangentIsDefined) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoResults), {{false, false}}), R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      return none: grad 0, none: grad 1, none: grad 2
    })");
}

TEST(DropTangents, WritesZerosOutInsideAList) {
  constexpr char text[] = R"(
    graph g.backward(%s: f32[2] saved 0, %d0: f32[2] tangent 0, %d1: f32[2] tangent 1, %d2: f32[3] tangent 2) {
      backward:
      %a: f32[2] = aten.mul.Tensor(%d0, %s)
      %b: f32[2] = aten.neg(%d0)
      %dx: f32[9] = aten.cat([%a, %d1, %b, %d2], 0)
      return %dx: grad 0
    })";

  // The two missing parts share one tensor of zeros; what computed them is gone.
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true, true}}), R"(
    graph g.backward(%s: f32[2] saved 0, %d0: f32[2] tangent 0, %d1: f32[2] tangent 1, %d2: f32[3] tangent 2) {
      backward:
      %0: f32[2] = aten.zeros([2], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %dx: f32[9] = aten.cat([%0, %d1, %0, %d2], 0)
      return %dx: grad 0
    })");
}

TEST(DropTangents, WritesZerosOutWithTheStridesOfTheType) {
  constexpr char text[] = R"(
    graph g.backward(%d0: f32[2, 3] tangent 0, %d1: f32[3, 2] (1, 3) tangent 1) {
      backward:
      %t: f32[3, 2] (1, 3) = aten.t(%d0)
      %dx: f32[6, 2] = aten.cat([%t, %d1], 0)
      return %dx: grad 0
    })";

  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}), R"(
    graph g.backward(%d0: f32[2, 3] tangent 0, %d1: f32[3, 2] (1, 3) tangent 1) {
      backward:
      %0: f32[6] = aten.zeros([6], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %1: f32[3, 2] (1, 3) = aten.as_strided(%0, [3, 2], [1, 3], none)
      %dx: f32[6, 2] = aten.cat([%1, %d1], 0)
      return %dx: grad 0
    })");
}

// The sum broadcasts, so the other term alone has another type.
TEST(DropTangents, KeepsASumThatChangesTheType) {
  constexpr char text[] = R"(
    graph g.backward(%d0: f32[2, 3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %dx: f32[2, 3] = aten.add.Tensor(%d0, %d1, alpha=1)
      return %dx: grad 0
    })";

  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}), R"(
    graph g.backward(%d0: f32[2, 3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %0: f32[2, 3] = aten.zeros([2, 3], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %dx: f32[2, 3] = aten.add.Tensor(%0, %d1, alpha=1)
      return %dx: grad 0
    })");
}

TEST(DropTangents, KeepsASumWithAFactor) {
  constexpr char text[] = R"(
    graph g.backward(%d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %dx: f32[3] = aten.add.Tensor(%d0, %d1, alpha=2)
      return %dx: grad 0
    })";

  EXPECT_EQ(drop_tangents(ir::parse(text), {{false, true}}).node_count(), 2u);
}

// `ones_like` of a zero is not zero, and a comparison with it need not be false.
TEST(DropTangents, ComputesWhatIsNotLinearWithZeros) {
  constexpr char text[] = R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %ones: f32[3] = aten.ones_like(%d0, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %is_zero: bool[3] = aten.eq.Scalar(%d0, 0)
      %a: f32[3] = aten.mul.Tensor(%d1, %ones)
      %b: f32[3] = aten.mul.Tensor(%d1, %is_zero)
      %c: f32[3] = aten.mul.Tensor(%ones, %s)
      return %a: grad 0, %b: grad 1, %c: grad 2
    })";

  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %0: f32[3] = aten.zeros([3], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %ones: f32[3] = aten.ones_like(%0, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %is_zero: bool[3] = aten.eq.Scalar(%0, 0)
      %a: f32[3] = aten.mul.Tensor(%d1, %ones)
      %b: f32[3] = aten.mul.Tensor(%d1, %is_zero)
      return %a: grad 0, %b: grad 1, none: grad 2
    })");
}

// The same draws in number and order, whoever reads them.
TEST(DropTangents, KeepsADrawMadeFromAnUndefinedTangent) {
  constexpr char text[] = R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %h: f32[3] = aten.mul.Tensor(%d0, %s)
      %draw: f32[3] = aten.bernoulli.p(%h, 0.5, generator=none)
      %a: f32[3] = aten.mul.Tensor(%draw, %s)
      %b: f32[3] = aten.mul.Tensor(%d1, %s)
      return %a: grad 0, %b: grad 1
    })";

  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %0: f32[3] = aten.zeros([3], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %draw: f32[3] = aten.bernoulli.p(%0, 0.5, generator=none)
      %b: f32[3] = aten.mul.Tensor(%d1, %s)
      return none: grad 0, %b: grad 1
    })");
}

/// Two draws without operands: only the signature knows which tangents lead to them.
constexpr char kTwoDraws[] = R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %r0: f32[3] = aten.rand([3], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %a: f32[3] = aten.mul.Tensor(%d0, %r0)
      %r1: f32[3] = aten.rand([3], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[3] = aten.mul.Tensor(%d1, %s)
      return %a: grad 0, %b: grad 1
    })";

TEST(DropTangents, DropsDrawsThatNoDefinedTangentLeadsTo) {
  ir::Signature effects;
  effects.formulas = {{.tangents = {0}, .gradients = {0}}, {.tangents = {1}, .gradients = {1}}};
  effects.effects = {{0}, {1}};
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoDraws), {{false, true}}, effects), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %r1: f32[3] = aten.rand([3], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %b: f32[3] = aten.mul.Tensor(%d1, %s)
      return none: grad 0, %b: grad 1
    })");
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoDraws), {{true, false}}, effects), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %r0: f32[3] = aten.rand([3], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %a: f32[3] = aten.mul.Tensor(%d0, %r0)
      return %a: grad 0, none: grad 1
    })");
}

TEST(DropTangents, DropsDrawsThatLeadToNoWantedGradient) {
  ir::Signature signature;
  signature.formulas = {{.tangents = {0}, .gradients = {0}}, {.tangents = {1}, .gradients = {1}}};
  signature.effects = {{0}, {1}};
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kTwoDraws), {{true, true}, {true, false}}, signature), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %r0: f32[3] = aten.rand([3], dtype=f32, layout=none, device=cpu, pin_memory=none)
      %a: f32[3] = aten.mul.Tensor(%d0, %r0)
      return %a: grad 0, none: grad 1
    })");
}

// A tensor that two formulas write holds what those leave in it that are run.
TEST(DropTangents, ChoosesWhatATensorHolds) {
  constexpr char text[] = R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %now: f32[3] = tandem.read_in_backward(%s, [1])
      %a: f32[3] = aten.add.Tensor(%now, %d0, alpha=1)
      %after_a: f32[3] = tandem.written(%a, %now, 0)
      %b: f32[3] = aten.mul.Tensor(%after_a, %d1)
      %after_b: f32[3] = tandem.written(%b, %after_a, 1)
      tandem.write_in_backward(%s, %after_b, 1)
      tandem.write_in_backward(%s, %after_b, 1)
      return %d0: grad 0, %d1: grad 1
    })";
  ir::Signature signature;
  signature.formulas = {{.tangents = {0}, .gradients = {0}}, {.tangents = {1}, .gradients = {1}}};
  signature.effects = {{-1}, {0}, {1}};
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}, signature), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %now: f32[3] = tandem.read_in_backward(%s, [1])
      %b: f32[3] = aten.mul.Tensor(%now, %d1)
      tandem.write_in_backward(%s, %b, 1)
      return none: grad 0, %d1: grad 1
    })");
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{true, true}, {true, false}}, signature), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      backward:
      %now: f32[3] = tandem.read_in_backward(%s, [1])
      %a: f32[3] = aten.add.Tensor(%now, %d0, alpha=1)
      tandem.write_in_backward(%s, %a, 1)
      return %d0: grad 0, none: grad 1
    })");
  // Where nobody writes, nobody reads.
  EXPECT_EQ(drop_tangents(ir::parse(text), {{false, false}}, signature).node_count(), 0);
}

// A graph that comes without its signature: nobody knows, so nothing is dropped.
TEST(DropTangents, KeepsAllDrawsOfAGraphWithoutSignature) {
  EXPECT_EQ(drop_tangents(ir::parse(kTwoDraws), {{false, true}}).node_count(), 3);
}

TEST(DropTangents, KeepsAGradientThatDependsOnNoTangentAtAll) {
  constexpr char text[] = R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      return %s: grad 0, %d0: grad 1, %d1: grad 2
    })";

  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}), R"(
    graph g.backward(%s: f32[3] saved 0, %d0: f32[3] tangent 0, %d1: f32[3] tangent 1) {
      return %s: grad 0, none: grad 1, %d1: grad 2
    })");
}

// A custom function's formula for two results, which both are reached by both tangents.
constexpr char kMarked[] = R"(
  graph g.backward(%d0: f32[4] tangent 0, %d1: f32[4] tangent 1, %d2: f32[4] tangent 2) {
    backward:
    %g0: f32[4] = tandem.either(%d0, none, [%d0])
    %in0: f32[4] = tandem.arrives(%g0, [%d0, %d1])
    %g1: f32[4] = tandem.either(%d1, none, [%d1])
    %in1: f32[4] = tandem.arrives(%g1, [%d0, %d1])
    %shifted: f32[4] = aten.add.Scalar(%in1, 1, 1)
    %product: f32[4] = aten.mul.Tensor(%in0, %shifted)
    %other: f32[4] = aten.neg(%d2)
    %dx: f32[4] = aten.add.Tensor(%product, %other, alpha=1)
    return %dx: grad 0
  })";

TEST(DropTangents, ZerosThatAFormulaReadsAreData) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kMarked), {{true, false, false}}), R"(
    graph g.backward(%d0: f32[4] tangent 0, %d1: f32[4] tangent 1, %d2: f32[4] tangent 2) {
      backward:
      %0: f32[4] = aten.zeros([4], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      %shifted: f32[4] = aten.add.Scalar(%0, 1, 1)
      %product: f32[4] = aten.mul.Tensor(%d0, %shifted)
      return %product: grad 0
    })");
}

TEST(DropTangents, AFormulaThatNoTangentLeadsToIsLeftOut) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kMarked), {{false, false, true}}), R"(
    graph g.backward(%d0: f32[4] tangent 0, %d1: f32[4] tangent 1, %d2: f32[4] tangent 2) {
      backward:
      %other: f32[4] = aten.neg(%d2)
      return %other: grad 0
    })");
}

TEST(DropTangents, TakesOutTheMarksIfAllAreDefined) {
  ir::Graph graph = ir::parse(kMarked);
  EXPECT_TRUE(has_arrival_marks(graph));
  drop_arrival_marks(graph);
  EXPECT_FALSE(has_arrival_marks(graph));
  EXPECT_GRAPH_EQ(graph, R"(
    graph g.backward(%d0: f32[4] tangent 0, %d1: f32[4] tangent 1, %d2: f32[4] tangent 2) {
      backward:
      %shifted: f32[4] = aten.add.Scalar(%d1, 1, 1)
      %product: f32[4] = aten.mul.Tensor(%d0, %shifted)
      %other: f32[4] = aten.neg(%d2)
      %dx: f32[4] = aten.add.Tensor(%product, %other, alpha=1)
      return %dx: grad 0
    })");
}

// Data says nothing about what arrives: a formula may ignore its gradient.
TEST(DropTangents, WhatArrivesIsWhatTheMarkSays) {
  constexpr char text[] = R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %a: f32[4] = aten.neg(%s)
      %da: f32[4] = tandem.arrives(%a, [%d0])
      %b: f32[4] = aten.neg(%d1)
      %db: f32[4] = tandem.arrives(%b, [%d0, %d1])
      return %da: grad 0, %db: grad 1
    })";

  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{true, false}}), R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %a: f32[4] = aten.neg(%s)
      %0: f32[4] = aten.zeros([4], dtype=f32, layout=strided, device=cpu, pin_memory=none)
      return %a: grad 0, %0: grad 1
    })");
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(text), {{false, true}}), R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %b: f32[4] = aten.neg(%d1)
      return none: grad 0, %b: grad 1
    })");
}

constexpr char kBranches[] = R"(
  graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
    backward:
    %both: f32[4] = aten.mul.Tensor(%d0, %d1)
    %alone: f32[4] = aten.mul.Tensor(%d0, %s)
    %missing: f32[4] = tandem.raises(%both, "the first is missing")
    %first: f32[4] = tandem.either(%both, %alone, [%d1])
    %dx: f32[4] = tandem.either(%first, %missing, [%d0])
    return %dx: grad 0
  })";

TEST(DropTangents, TakesTheBranchOfWhatIsDefined) {
  EXPECT_GRAPH_EQ(drop_tangents(ir::parse(kBranches), {{true, false}}), R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %alone: f32[4] = aten.mul.Tensor(%d0, %s)
      return %alone: grad 0
    })");
  ir::Graph graph = ir::parse(kBranches);
  drop_arrival_marks(graph);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %both: f32[4] = aten.mul.Tensor(%d0, %d1)
      return %both: grad 0
    })");
}

TEST(DropTangents, RaisesWhatEagerRaisesInTheBranch) {
  EXPECT_THROW(
      {
        try {
          drop_tangents(ir::parse(kBranches), {{false, true}});
        } catch (const c10::Error& error) {
          EXPECT_STREQ(error.what_without_backtrace(), "the first is missing");
          throw;
        }
      },
      c10::Error);
}

}  // namespace
}  // namespace tandem::partition
