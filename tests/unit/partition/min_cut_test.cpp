#include "partition/min_cut/min_cut.h"

#include "partition/finish_split.h"
#include "support/error_text.h"
#include "support/graph_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem {
namespace {

Joint joint_of(const char* text) {
  Joint joint;
  joint.graph = ir::parse(text);
  joint.signature.training = true;
  return joint;
}

Split split(const char* text) {
  Split split = min_cut_recompute(joint_of(text), Options{});
  partition::finish_split(split, Mutations::in_graph);
  return split;
}

std::vector<std::string> saved_names(const Split& parts) {
  std::vector<std::string> names;
  for (const Saved& saved : parts.saved) names.push_back(saved.name);
  return names;
}
using Names = std::vector<std::string>;

// ---- worked examples of the reference ----

TEST(MinCut, ComputesACosineAgainFromTheArgumentThatIsReadAnyway) {
  Split parts = split(R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[] tangent 0) {
      %c: f32[64] = aten.cos(%x)
      %s: f32[64] = aten.sin(%c)
      %y: f32[] = aten.sum(%s, dtype=none)
      backward:
      %e: f32[64] (0) = aten.expand(%dy, [64], implicit=false)
      %cc: f32[64] = aten.cos(%c)
      %dc: f32[64] = aten.mul.Tensor(%e, %cc)
      %sx: f32[64] = aten.sin(%x)
      %n: f32[64] = aten.neg(%sx)
      %dx: f32[64] = aten.mul.Tensor(%dc, %n)
      return %y: output 0, %dx: grad 0
    })");
  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph g.forward(%x: f32[64] user_input 0) {
      %c: f32[64] = aten.cos(%x)
      %s: f32[64] = aten.sin(%c)
      %y: f32[] = aten.sum(%s, dtype=none)
      return %y: output 0, %x: saved 0
    })");
  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%x: f32[64] saved 0, %dy: f32[] tangent 0) {
      backward:
      %e: f32[64] (0) = aten.expand(%dy, [64], implicit=false)
      %c: f32[64] = aten.cos(%x)
      %cc: f32[64] = aten.cos(%c)
      %dc: f32[64] = aten.mul.Tensor(%e, %cc)
      %sx: f32[64] = aten.sin(%x)
      %n: f32[64] = aten.neg(%sx)
      %dx: f32[64] = aten.mul.Tensor(%dc, %n)
      return %dx: grad 0
    })");
  ASSERT_EQ(parts.saved.size(), 1);
  EXPECT_EQ(parts.saved[0].bytes, 0);
  EXPECT_EQ(parts.saved[0].why, "an input that the backward reads (by reference, 0 bytes)");
  ASSERT_EQ(parts.recomputed.size(), 1);
  EXPECT_EQ(parts.recomputed[0].name, "c");
  EXPECT_EQ(parts.recomputed[0].bytes, 256);
  EXPECT_EQ(parts.recomputed[0].why, "aten.cos is cheap, made from %x");
}

// The mask is traced by the backward, but depends on no tangent: a quarter of the bytes of what it
// is computed from, so the forward makes it.
TEST(MinCut, MovesAMaskToTheForwardWhereItIsSmallerThanItsOperand) {
  Split parts = split(R"(
    graph g.joint(%x: f32[16, 8] user_input 0, %w: f32[8, 4] param "w", %dy: f32[16, 4] tangent 0) {
      %h: f32[16, 4] = aten.mm(%x, %w)
      %y: f32[16, 4] = aten.relu(%h)
      backward:
      %mask: bool[16, 4] = aten.le.Scalar(%y, 0)
      %dh: f32[16, 4] = aten.masked_fill.Scalar(%dy, %mask, 0)
      %xt: f32[8, 16] (1, 8) = aten.t(%x)
      %dw: f32[8, 4] = aten.mm(%xt, %dh)
      %wt: f32[4, 8] (1, 4) = aten.t(%w)
      %dx: f32[16, 8] = aten.mm(%dh, %wt)
      return %y: output 0, %dx: grad 0, %dw: grad 1 "w"
    })");
  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph g.forward(%x: f32[16, 8] user_input 0, %w: f32[8, 4] param "w") {
      %h: f32[16, 4] = aten.mm(%x, %w)
      %y: f32[16, 4] = aten.relu(%h)
      %mask: bool[16, 4] = aten.le.Scalar(%y, 0)
      return %y: output 0, %x: saved 0, %w: saved 1, %mask: saved 2
    })");
  EXPECT_EQ(parts.saved[2].bytes, 64);
  EXPECT_EQ(parts.saved[2].why,
            "read by aten.masked_fill.Scalar in the backward; no more bytes than what it is "
            "computed from, computing it again would take 3 ops");
  EXPECT_TRUE(parts.recomputed.empty());
}

TEST(MinCut, KeepsTheMaskOfADropoutNotItsDraws) {
  Split parts = split(R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[64] tangent 0) {
      %r: f32[64] = aten.rand_like(%x, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %m: bool[64] = aten.gt.Scalar(%r, 0.5)
      %y: f32[64] = aten.mul.Tensor(%x, %m)
      backward:
      %dx: f32[64] = aten.mul.Tensor(%dy, %m)
      return %y: output 0, %dx: grad 0
    })");
  EXPECT_EQ(saved_names(parts), Names{"m"});
  EXPECT_EQ(parts.backward.node_count(), 1u) << ir::print(parts.backward);
}

TEST(MinCut, KeepsTheStatisticsOfANormalisationAndWhatTheyAreOf) {
  Split parts = split(R"(
    graph g.joint(%x0: f32[8, 32] user_input 0, %w: f32[32] param "w", %b: f32[32] param "b", %dy: f32[8, 32] tangent 0) {
      %x: f32[8, 32] = aten.mm(%x0, %x0)
      %v: f32[8, 1], %mean: f32[8, 1] = aten.var_mean.correction(%x, [1], correction=0, keepdim=true)
      %d: f32[8, 32] = aten.sub.Tensor(%x, %mean, alpha=1)
      %ve: f32[8, 1] = aten.add.Scalar(%v, 1.0e-5, alpha=1)
      %r: f32[8, 1] = aten.rsqrt(%ve)
      %n: f32[8, 32] = aten.mul.Tensor(%d, %r)
      %nw: f32[8, 32] = aten.mul.Tensor(%n, %w)
      %y: f32[8, 32] = aten.add.Tensor(%nw, %b, alpha=1)
      backward:
      %dn: f32[8, 32] = aten.mul.Tensor(%dy, %w)
      %dwn: f32[8, 32] = aten.mul.Tensor(%dy, %n)
      %dw: f32[32] = aten.sum.dim_IntList(%dwn, [0], false, dtype=none)
      %db: f32[32] = aten.sum.dim_IntList(%dy, [0], false, dtype=none)
      %t1: f32[8, 32] = aten.mul.Tensor(%dn, %n)
      %s1: f32[8, 1] = aten.sum.dim_IntList(%t1, [1], true, dtype=none)
      %t2: f32[8, 32] = aten.mul.Tensor(%n, %s1)
      %t3: f32[8, 32] = aten.sub.Tensor(%dn, %t2, alpha=1)
      %dx: f32[8, 32] = aten.mul.Tensor(%t3, %r)
      return %y: output 0, %dx: grad 0, %dw: grad 1 "w", %db: grad 2 "b"
    })");
  EXPECT_EQ(saved_names(parts), (Names{"w", "x", "mean", "r"}));
  Names again;
  for (const Recomputed& one : parts.recomputed) again.push_back(one.name);
  EXPECT_EQ(again, (Names{"d", "n"}));
}

// ---- what a recomputing partition must not change ----

// Eager keeps the sum, not the bias: a step of the optimizer on nothing but the bias is legal in
// between, and so is writing to the argument.
TEST(MinCut, CopiesAnArgumentThatOnlyRecomputationReads) {
  constexpr char kText[] = R"(
    graph g.joint(%x: f32[4, 64] user_input 0, %b: f32[64] user_input 1, %dy: f32[4, 64] tangent 0) {
      %p: f32[4, 64] = aten.mm(%x, %x)
      %h: f32[4, 64] = aten.add.Tensor(%p, %b, alpha=1)
      %y: f32[4, 64] = aten.sin(%h)
      backward:
      %c: f32[4, 64] = aten.cos(%h)
      %dh: f32[4, 64] = aten.mul.Tensor(%dy, %c)
      return %y: output 0, %dh: grad 0
    })";
  Split parts = split(kText);
  EXPECT_GRAPH_EQ(parts.forward, R"(
    graph g.forward(%x: f32[4, 64] user_input 0, %b: f32[64] user_input 1) {
      %p: f32[4, 64] = aten.mm(%x, %x)
      %h: f32[4, 64] = aten.add.Tensor(%p, %b, alpha=1)
      %y: f32[4, 64] = aten.sin(%h)
      %b_copy: f32[64] = aten.clone(%b, memory_format=none)
      return %y: output 0, %b_copy: saved 0, %p: saved 1
    })");
  EXPECT_EQ(parts.saved[0].bytes, 256);
  EXPECT_EQ(parts.saved[0].why,
            "a copy of an input that eager does not keep: aten.add.Tensor is computed again from "
            "it");
}

TEST(MinCut, KeepsAParameterByReference) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4, 64] user_input 0, %b: f32[64] param "b", %dy: f32[4, 64] tangent 0) {
      %p: f32[4, 64] = aten.mm(%x, %x)
      %h: f32[4, 64] = aten.add.Tensor(%p, %b, alpha=1)
      %y: f32[4, 64] = aten.sin(%h)
      backward:
      %c: f32[4, 64] = aten.cos(%h)
      %dh: f32[4, 64] = aten.mul.Tensor(%dy, %c)
      return %y: output 0, %dh: grad 0
    })");
  EXPECT_EQ(saved_names(parts), (Names{"b", "p"}));
  EXPECT_EQ(parts.saved[0].bytes, 0);
  EXPECT_EQ(parts.saved[0].why,
            "a parameter (by reference, 0 bytes): aten.add.Tensor is computed again from it");
}

// It lies in the graph, so each half has it.
TEST(MinCut, NeverKeepsAConstant) {
  const char* text = R"(
    graph g.joint(%x: f32[4, 4] user_input 0, %m: bool[4, 4] user_input 1, %dy: f32[4, 4] tangent 0) {
      %z: f32[] = constant {0.0}
      %e: f32[4, 4] = constant {1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0}
      %w: f32[4, 4] = aten.where.self(%m, %x, %z)
      %y: f32[4, 4] = aten.mm(%w, %e)
      backward:
      %dw: f32[4, 4] = aten.mm(%dy, %e)
      %dx: f32[4, 4] = aten.where.self(%m, %dw, %z)
      return %y: output 0, %dx: grad 0
    })";
  EXPECT_EQ(saved_names(split(text)), (Names{"m"}));
  EXPECT_EQ(saved_names(min_cut(joint_of(text), Options{})), (Names{"m"}));
}

// The caller may write to a result that eager's backward does not read.
TEST(MinCut, CopiesAResultThatOnlyRecomputationReads) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4, 64] user_input 0, %b: f32[64] param "b", %dy: f32[4, 64] tangent 0) {
      %p: f32[4, 64] = aten.mm(%x, %x)
      %h: f32[4, 64] = aten.add.Tensor(%p, %b, alpha=1)
      %y: f32[4, 64] = aten.sin(%h)
      backward:
      %c: f32[4, 64] = aten.cos(%h)
      %dh: f32[4, 64] = aten.mul.Tensor(%dy, %c)
      return %y: output 0, %p: output 1, %dh: grad 0
    })");
  EXPECT_EQ(saved_names(parts), (Names{"b", "p_copy"}));
}

TEST(MinCut, NeverRepeatsDrawsAndEffects) {
  Split parts = split(R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[64] tangent 0) {
      %r: f32[64] = aten.rand_like(%x, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %unread: f32[64] = aten.rand_like(%x, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %m: f32[64] = aten.mul.Tensor(%x, %r)
      %all: bool[] = aten.all(%x)
      aten._assert_async(%all)
      %y: f32[64] = aten.sin(%m)
      backward:
      %c: f32[64] = aten.cos(%m)
      %d: f32[64] = aten.mul.Tensor(%dy, %c)
      %noise: f32[64] = aten.rand_like(%d, dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %dx: f32[64] = aten.mul.Tensor(%d, %noise)
      return %y: output 0, %dx: grad 0
    })");
  const auto count = [](const ir::Graph& graph, const std::string& op) {
    int64_t found = 0;
    graph.for_each_node([&](const ir::Node& node) {
      found += node.kind() == ir::NodeKind::Op && node.op().operator_name().name == op;
    });
    return found;
  };
  EXPECT_EQ(count(parts.forward, "aten::rand_like"), 2);
  EXPECT_EQ(count(parts.backward, "aten::rand_like"), 1);
  EXPECT_EQ(count(parts.forward, "aten::_assert_async"), 1);
  EXPECT_EQ(count(parts.backward, "aten::_assert_async"), 0);
}

TEST(MinCut, MakesSeveralResultsOfAViewAgain) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4, 4] user_input 0, %dy: f32[2, 4] tangent 0) {
      [%a: f32[2, 4], %b: f32[2, 4]] = aten.split.Tensor(%x, 2, 0)
      %s: f32[2, 4] = aten.sin(%a)
      %c: f32[2, 4] = aten.cos(%b)
      %y: f32[2, 4] = aten.add.Tensor(%s, %c, alpha=1)
      backward:
      %ca: f32[2, 4] = aten.cos(%a)
      %da: f32[2, 4] = aten.mul.Tensor(%dy, %ca)
      %sb: f32[2, 4] = aten.sin(%b)
      %nb: f32[2, 4] = aten.neg(%sb)
      %db: f32[2, 4] = aten.mul.Tensor(%dy, %nb)
      %dx: f32[4, 4] = aten.cat([%da, %db], 0)
      return %y: output 0, %dx: grad 0
    })");
  EXPECT_EQ(saved_names(parts), Names{"x"});
  EXPECT_EQ(parts.saved[0].bytes, 0);
}

// Which may be another one when the backward runs.
TEST(MinCut, DoesNotAskForTheDefaultDtypeAgain) {
  constexpr char kText[] = R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[64] tangent 0) {
      %f: f32[64] = aten.full([64], 0.5, dtype=DTYPE, layout=none, device=none, pin_memory=none)
      %y: f32[64] = aten.mul.Tensor(%x, %f)
      backward:
      %dx: f32[64] = aten.mul.Tensor(%dy, %f)
      return %y: output 0, %dx: grad 0
    })";
  const auto saved = [&](const std::string& dtype) {
    std::string text = kText;
    text.replace(text.find("DTYPE"), 5, dtype);
    return split(text.c_str()).saved.size();
  };
  EXPECT_EQ(saved("none"), 1u);
  EXPECT_EQ(saved("f32"), 0u);
}

// A number that is read off a tensor is read again.
TEST(MinCut, ReadsANumberAgain) {
  Split parts = split(R"(
    graph g.joint(%x: f32[] user_input 0, %dy: f32[4] tangent 0) {
      %n: float = aten._local_scalar_dense(%x)
      %y: f32[4] = aten.full([4], %n, dtype=f32, layout=none, device=none, pin_memory=none)
      backward:
      %dx: f32[4] = aten.mul.Scalar(%dy, %n)
      return %y: output 0, %dx: grad 0
    })");
  EXPECT_EQ(saved_names(parts), Names{"x_copy"});
}

TEST(MinCut, NamesThePathToAValueThatCanNeitherBeKeptNorComputedAgain) {
  EXPECT_EQ(test::error_text<UnsupportedError>([] {
              split(R"(
                graph g.joint(%x: f32[2, 3, 4, 8] user_input 0, %dy: f32[4] tangent 0) {
                  %n: int = aten._fused_sdp_choice(%x, %x, %x, none, 0.0, false, scale=none, enable_gqa=false)
                  %y: f32[4] = aten.full([4], %n, dtype=f32, layout=none, device=none, pin_memory=none)
                  backward:
                  %dx: f32[4] = aten.mul.Scalar(%dy, %n)
                  return %y: output 0, %dx: grad 0
                })");
            }),
            "partition: the backward needs a value that can neither be kept nor computed again\n"
            "  path:   %n cannot be computed again: it draws or has an effect\n"
            "          %n cannot be kept: it is a number\n"
            "          %dx reads it\n"
            "          %dx is computed in the backward\n"
            "  remedy: keep it in a tensor, or give default_partition as partitioner");
}

TEST(MinCut, HasOneHalfWithoutGradients) {
  Split parts = split(R"(
    graph g.joint(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.sin(%x)
      return %y: output 0
    })");
  EXPECT_TRUE(parts.saved.empty());
  EXPECT_EQ(parts.backward.node_count(), 0u);
}

// ---- when the backward computes again ----

TEST(MinCut, ComputesAgainJustBeforeUse) {
  Split parts = split(R"(
    graph g.joint(%x: f32[64] user_input 0, %z: f32[64] user_input 1, %dy: f32[64] tangent 0) {
      %a: f32[64] = aten.sin(%x)
      %b: f32[64] = aten.sin(%z)
      %a2: f32[64] = aten.exp(%a)
      %b2: f32[64] = aten.exp(%b)
      %y: f32[64] = aten.mul.Tensor(%a2, %b2)
      backward:
      %da2: f32[64] = aten.mul.Tensor(%dy, %b2)
      %db2: f32[64] = aten.mul.Tensor(%dy, %a2)
      %db: f32[64] = aten.mul.Tensor(%db2, %b2)
      %cz: f32[64] = aten.cos(%z)
      %dz: f32[64] = aten.mul.Tensor(%db, %cz)
      %da: f32[64] = aten.mul.Tensor(%da2, %a2)
      %cx: f32[64] = aten.cos(%x)
      %dx: f32[64] = aten.mul.Tensor(%da, %cx)
      return %y: output 0, %dx: grad 0, %dz: grad 1
    })");
  EXPECT_EQ(saved_names(parts), (Names{"x", "z"}));
  EXPECT_GRAPH_EQ(parts.backward, R"(
    graph g.backward(%x: f32[64] saved 0, %z: f32[64] saved 1, %dy: f32[64] tangent 0) {
      backward:
      %b: f32[64] = aten.sin(%z)
      %b2: f32[64] = aten.exp(%b)
      %da2: f32[64] = aten.mul.Tensor(%dy, %b2)
      %a: f32[64] = aten.sin(%x)
      %a2: f32[64] = aten.exp(%a)
      %db2: f32[64] = aten.mul.Tensor(%dy, %a2)
      %db: f32[64] = aten.mul.Tensor(%db2, %b2)
      %cz: f32[64] = aten.cos(%z)
      %dz: f32[64] = aten.mul.Tensor(%db, %cz)
      %da: f32[64] = aten.mul.Tensor(%da2, %a2)
      %cx: f32[64] = aten.cos(%x)
      %dx: f32[64] = aten.mul.Tensor(%da, %cx)
      return %dx: grad 0, %dz: grad 1
    })");
}

// ---- on a backend that fuses nothing ----

Split split_without_fusion(const char* text) {
  return partition::cut_at_minimum(joint_of(text), partition::fuses_nothing);
}

// Computing the cosine again would be one more pass over memory.
TEST(MinCutWithoutFusion, KeepsWhatTheForwardComputedAndRepeatsViewsOnly) {
  const Split parts = split_without_fusion(R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[] tangent 0) {
      %c: f32[64] = aten.cos(%x)
      %s: f32[64] = aten.sin(%c)
      %y: f32[] = aten.sum(%s, dtype=none)
      backward:
      %e: f32[64] (0) = aten.expand(%dy, [64], implicit=false)
      %cc: f32[64] = aten.cos(%c)
      %dc: f32[64] = aten.mul.Tensor(%e, %cc)
      %sx: f32[64] = aten.sin(%x)
      %n: f32[64] = aten.neg(%sx)
      %dx: f32[64] = aten.mul.Tensor(%dc, %n)
      return %y: output 0, %dx: grad 0
    })");
  EXPECT_EQ(saved_names(parts), (Names{"x", "c"}));
  EXPECT_TRUE(parts.recomputed.empty());
}

// The mask is computed once, wherever that is: in the forward it replaces four times its bytes.
TEST(MinCutWithoutFusion, KeepsTheMaskThatTheBackwardWouldHaveComputed) {
  const Split parts = split_without_fusion(R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[] tangent 0) {
      %h: f32[64] = aten.exp(%x)
      %r: f32[64] = aten.clamp_min(%h, 1)
      %y: f32[] = aten.sum(%r, dtype=none)
      backward:
      %e: f32[64] (0) = aten.expand(%dy, [64], implicit=false)
      %m: bool[64] = aten.gt.Scalar(%h, 1)
      %dh: f32[64] = aten.mul.Tensor(%e, %m)
      return %y: output 0, %dh: grad 0
    })");
  EXPECT_EQ(saved_names(parts), Names{"m"});
  EXPECT_EQ(parts.saved[0].bytes, 64);
}

// The caller holds its argument in any case, so the smaller mask would be bytes on top.
TEST(MinCutWithoutFusion, AnArgumentThatEagerKeepsCostsNothing) {
  const Split parts = split_without_fusion(R"(
    graph g.joint(%x: f32[64] user_input 0, %dy: f32[] tangent 0) {
      %r: f32[64] = aten.clamp_min(%x, 1)
      %y: f32[] = aten.sum(%r, dtype=none)
      backward:
      %e: f32[64] (0) = aten.expand(%dy, [64], implicit=false)
      %m: bool[64] = aten.gt.Scalar(%x, 1)
      %dh: f32[64] = aten.mul.Tensor(%e, %m)
      return %y: output 0, %dh: grad 0
    })");
  EXPECT_EQ(saved_names(parts), Names{"x"});
  EXPECT_EQ(parts.saved[0].bytes, 0);
}

}  // namespace
}  // namespace tandem
