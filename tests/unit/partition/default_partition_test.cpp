#include "support/error_text.h"
#include "support/graph_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

Split split(const char* text) {
  Joint joint;
  joint.graph = ir::parse(text);
  joint.signature.training = true;
  return default_partition(joint, Options{});
}

// One linear layer with a sine: a matrix product reads views of inputs, the sine's gradient an
// intermediate.
constexpr char kLinearSine[] = R"(
  graph net.joint(%w: f32[3, 2] lifted 0, %x: f32[4, 2] user_input 0, %dy: f32[4, 3] tangent 0) {
    %wt: f32[2, 3] (1, 2) = aten.t(%w)
    %h: f32[4, 3] = aten.mm(%x, %wt)  # net.cpp:7
    %y: f32[4, 3] = aten.sin(%h)  # net.cpp:8
    backward:
    %cos: f32[4, 3] = aten.cos(%h)
    %dh: f32[4, 3] = aten.mul.Tensor(%dy, %cos)
    %w_again: f32[3, 2] = aten.t(%wt)
    %dx: f32[4, 2] = aten.mm(%dh, %w_again)
    %dht: f32[3, 4] (1, 3) = aten.t(%dh)
    %dw: f32[3, 2] = aten.mm(%dht, %x)
    return %y: output 0, %dw: grad 0 "w", %dx: grad 1
  })";

TEST(DefaultPartition, CutsWhereTheRecordingWentFromForwardToBackward) {
  Split parts = split(kLinearSine);

  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph net.forward(%w: f32[3, 2] lifted 0, %x: f32[4, 2] user_input 0) {
      %wt: f32[2, 3] (1, 2) = aten.t(%w)
      %h: f32[4, 3] = aten.mm(%x, %wt)  # net.cpp:7
      %y: f32[4, 3] = aten.sin(%h)  # net.cpp:8
      return %y: output 0, %w: saved 0, %x: saved 1, %h: saved 2
    })");
  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph net.backward(%w: f32[3, 2] saved 0, %x: f32[4, 2] saved 1, %h: f32[4, 3] saved 2, %dy: f32[4, 3] tangent 0) {
      backward:
      %wt: f32[2, 3] (1, 2) = aten.t(%w)
      %cos: f32[4, 3] = aten.cos(%h)
      %dh: f32[4, 3] = aten.mul.Tensor(%dy, %cos)
      %w_again: f32[3, 2] = aten.t(%wt)
      %dx: f32[4, 2] = aten.mm(%dh, %w_again)
      %dht: f32[3, 4] (1, 3) = aten.t(%dh)
      %dw: f32[3, 2] = aten.mm(%dht, %x)
      return %dw: grad 0 "w", %dx: grad 1
    })");
}

TEST(DefaultPartition, SaysWhatIsSavedAndWhy) {
  Split parts = split(kLinearSine);

  ASSERT_EQ(parts.saved.size(), 3u);
  EXPECT_EQ(parts.saved[0].name, "w");
  EXPECT_EQ(parts.saved[0].bytes, 0);
  EXPECT_EQ(parts.saved[0].line, "");
  EXPECT_EQ(parts.saved[0].why, "an input that the backward reads (by reference, 0 bytes)");
  EXPECT_EQ(parts.saved[1].name, "x");
  EXPECT_EQ(parts.saved[2].name, "h");
  EXPECT_EQ(parts.saved[2].bytes, 4 * 3 * 4);
  EXPECT_EQ(parts.saved[2].line, "net.cpp:7");
  EXPECT_EQ(parts.saved[2].why, "read by aten.cos in the backward");
  EXPECT_TRUE(parts.signature.training);
}

TEST(DefaultPartition, NamesSavedValuesAsTheTextDoes) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %0: f32[4] = aten.sin(%x)
      %1: f32[4] = aten.exp(%0)
      backward:
      %2: f32[4] = aten.mul.Tensor(%dy, %1)
      return %1: output 0, %2: grad 0
    })");

  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(parts.saved[0].name, "1");
  EXPECT_NE(ir::print(parts.forward).find("%1: saved 0"), std::string::npos)
      << ir::print(parts.forward);
  EXPECT_NE(ir::print(parts.backward).find("%1: f32[4] saved 0"), std::string::npos)
      << ir::print(parts.backward);
}

// Saved as a hidden view, the input could be written to by an optimizer without anybody noticing.
TEST(DefaultPartition, SavesAnInputInsteadOfAChainOfViewsOfIt) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4, 2] user_input 0, %dy: f32[8] tangent 0) {
      %a: f32[2, 4] (1, 2) = aten.t(%x)
      %b: f32[4, 2] = aten.t(%a)
      %c: f32[8] = aten.view(%b, [8])
      %y: f32[8] = aten.sin(%c)
      backward:
      %cos: f32[8] = aten.cos(%c)
      %g: f32[8] = aten.mul.Tensor(%dy, %cos)
      %dx: f32[4, 2] = aten.view(%g, [4, 2])
      return %y: output 0, %dx: grad 0
    })");

  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%x: f32[4, 2] saved 0, %dy: f32[8] tangent 0) {
      backward:
      %a: f32[2, 4] (1, 2) = aten.t(%x)
      %b: f32[4, 2] = aten.t(%a)
      %c: f32[8] = aten.view(%b, [8])
      %cos: f32[8] = aten.cos(%c)
      %g: f32[8] = aten.mul.Tensor(%dy, %cos)
      %dx: f32[4, 2] = aten.view(%g, [4, 2])
      return %dx: grad 0
    })");
}

TEST(DefaultPartition, SavesAViewOfAnIntermediateAsItIs) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4, 2] user_input 0, %dy: f32[8] tangent 0) {
      %h: f32[4, 2] = aten.exp(%x)
      %v: f32[8] = aten.view(%h, [8])
      %y: f32[8] = aten.sin(%v)
      backward:
      %cos: f32[8] = aten.cos(%v)
      %g: f32[8] = aten.mul.Tensor(%dy, %cos)
      return %y: output 0, %g: grad 0
    })");

  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(parts.saved[0].name, "v");
}

// Both would be held otherwise, and counted twice.
TEST(DefaultPartition, SavesTheBaseOnlyIfTheBackwardReadsItAndAView) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4, 2] user_input 0, %dy: f32[8] tangent 0) {
      %h: f32[4, 2] = aten.exp(%x)
      %v: f32[8] = aten.view(%h, [8])
      %y: f32[8] = aten.sin(%v)
      backward:
      %cos: f32[8] = aten.cos(%v)
      %g: f32[8] = aten.mul.Tensor(%dy, %cos)
      %dh: f32[4, 2] = aten.view(%g, [4, 2])
      %dx: f32[4, 2] = aten.mul.Tensor(%dh, %h)
      return %y: output 0, %dx: grad 0
    })");

  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%h: f32[4, 2] saved 0, %dy: f32[8] tangent 0) {
      backward:
      %v: f32[8] = aten.view(%h, [8])
      %cos: f32[8] = aten.cos(%v)
      %g: f32[8] = aten.mul.Tensor(%dy, %cos)
      %dh: f32[4, 2] = aten.view(%g, [4, 2])
      %dx: f32[4, 2] = aten.mul.Tensor(%dh, %h)
      return %dx: grad 0
    })");
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(parts.saved[0].bytes, 32);
}

// A draw has happened once the forward is over; running it again would shift the stream.
TEST(DefaultPartition, LeavesDrawsOfTheForwardInTheForward) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %dead: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %mask: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %y: f32[4] = aten.mul.Tensor(%x, %mask)
      backward:
      %late: f32[4] = aten.bernoulli.p(%dy, 0.5, generator=none)
      %dx: f32[4] = aten.mul.Tensor(%dy, %mask)
      return %y: output 0, %dx: grad 0
    })");

  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %dead: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %mask: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %y: f32[4] = aten.mul.Tensor(%x, %mask)
      return %y: output 0, %mask: saved 0
    })");
  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%mask: f32[4] saved 0, %dy: f32[4] tangent 0) {
      backward:
      %late: f32[4] = aten.bernoulli.p(%dy, 0.5, generator=none)
      %dx: f32[4] = aten.mul.Tensor(%dy, %mask)
      return %dx: grad 0
    })");
}

TEST(DefaultPartition, KeepsEveryTangentAndEveryGradientInItsPlace) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0, %z: f32[4] user_input 1, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      %y: f32[4] = aten.sin(%x)
      %new: f32[4] = aten.cos(%x)
      return %new: mutated 1, %y: output 0, none: grad 0, %d1: grad 1
    })");

  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph g.forward(%x: f32[4] user_input 0, %z: f32[4] user_input 1) {
      %y: f32[4] = aten.sin(%x)
      %new: f32[4] = aten.cos(%x)
      return %new: mutated 1, %y: output 0
    })");
  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      return none: grad 0, %d1: grad 1
    })");
}

TEST(DefaultPartition, RepeatsConstantsInsteadOfSavingThem) {
  Split parts = split(R"(
    graph g.joint(%x: f32[2] user_input 0, %dy: f32[2] tangent 0) {
      %c: f32[2] = constant {1.0, 2.0}
      %v: f32[2, 1] = aten.view(%c, [2, 1])
      %y: f32[2] = aten.mul.Tensor(%x, %c)
      backward:
      %dx: f32[2] = aten.mul.Tensor(%dy, %c)
      %dv: f32[2, 2] = aten.mul.Tensor(%dx, %v)
      return %y: output 0, %dv: grad 0
    })");

  EXPECT_TRUE(parts.saved.empty());
  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%dy: f32[2] tangent 0) {
      backward:
      %c: f32[2] = constant {1.0, 2.0}
      %v: f32[2, 1] = aten.view(%c, [2, 1])
      %dx: f32[2] = aten.mul.Tensor(%dy, %c)
      %dv: f32[2, 2] = aten.mul.Tensor(%dx, %v)
      return %dv: grad 0
    })");
}

TEST(DefaultPartition, SavesNothingForADeadBackwardNode) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %h: f32[4] = aten.exp(%x)
      %y: f32[4] = aten.sin(%h)
      backward:
      %unused: f32[4] = aten.cos(%h)
      return %y: output 0, %dy: grad 0
    })");

  EXPECT_TRUE(parts.saved.empty());
  EXPECT_EQ(parts.backward.node_count(), 0u);
}

TEST(DefaultPartition, MakesAgainWhatTheBackwardComputedWithoutTangents) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %y: f32[4] = aten.sin(%x)
      backward:
      %cos: f32[4] = aten.cos(%x)
      return %y: output 0, %cos: grad 0
    })");

  EXPECT_EQ(parts.forward.node_count(), 1u);
  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(parts.saved[0].name, "x");
}

TEST(DefaultPartition, SavesAForwardValueThatIsItselfAGradient) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
      %y: f32[4] = aten.sin(%x)
      return %y: output 0, %y: grad 0
    })");

  ASSERT_EQ(parts.saved.size(), 1u);
  EXPECT_EQ(parts.saved[0].why, "returned as grad 0");
}

TEST(DefaultPartition, GivesAnInferenceGraphAnEmptyBackward) {
  Split parts = split(R"(
    graph g(%x: f32[4] user_input 0) {
      %unused: f32[4] = aten.cos(%x)
      %y: f32[4] = aten.sin(%x)
      return %y: output 0
    })");

  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.sin(%x)
      return %y: output 0
    })");
  EXPECT_TRUE(parts.backward.inputs().empty());
  EXPECT_TRUE(parts.backward.outputs().empty());
  EXPECT_EQ(parts.backward.node_count(), 0u);
}

TEST(DefaultPartition, RefusesToSaveANumber) {
  EXPECT_EQ(test::error_text<UnsupportedError>([] {
              split(R"(
                graph g.joint(%x: f32[] user_input 0, %dy: f32[4] tangent 0) {
                  %n: float = aten._local_scalar_dense(%x)
                  %y: f32[4] = aten.full([4], %n, dtype=f32, layout=none, device=none, pin_memory=none)
                  backward:
                  %dx: f32[4] = aten.mul.Scalar(%dy, %n)
                  return %y: output 0, %dx: grad 0
                })");
            }),
            "partition: a number computed at run time cannot be kept for the backward\n"
            "  value:  %n, read by aten.mul.Scalar in the backward\n"
            "  remedy: keep it in a tensor instead of reading it with item()");
}

}  // namespace
}  // namespace tandem
