#include "backends/eager/eager_backend.h"
#include "loops/host/host_list.h"
#include "loops/host/kernel_backend.h"
#include "tandem/backend.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::loops {
namespace {

using at::Tensor;

/// How many kernels and calls of libtorch a graph becomes.
struct Counts {
  int kernels = 0, calls = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
  friend void PrintTo(const Counts& counts, std::ostream* out) {
    *out << counts.kernels << " kernels, " << counts.calls << " calls";
  }
};

Counts counts(const char* text) {
  auto judge = backends::eager::make_backend();
  auto compiler = make_reference_compiler();
  const HostList list = make_host_list(ir::parse(text), {}, *compiler, *judge);
  Counts out;
  for (const Step& step : list.steps) {
    out.kernels += std::holds_alternative<KernelStep>(step.what) ? 1 : 0;
    out.calls += std::holds_alternative<LibraryStep>(step.what) ? 1 : 0;
  }
  return out;
}

/// Runs the graph in eager, with the reference interpreter and with generated code.
void expect_equal(const char* text, const std::vector<Tensor>& inputs, double tolerance = 1e-5) {
  const ir::Graph graph = ir::parse(text);
  std::vector<Tensor> given = inputs;
  const std::vector<Tensor> expected = backend("eager")->compile(graph, {})->run(given);
  const std::shared_ptr<Backend> engines[] = {
      make_backend(make_reference_compiler(), backends::eager::make_backend()), backend("llvm")};
  for (size_t engine = 0; engine < 2; ++engine) {
    SCOPED_TRACE(engine == 0 ? "reference" : "generated");
    const auto compiled = engines[engine]->compile(graph, {});
    for (int round = 0; round < 2; ++round) {  // the second one finds a used arena
      given = inputs;
      const std::vector<Tensor> results = compiled->run(given);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        SCOPED_TRACE("output " + std::to_string(i));
        ASSERT_EQ(results[i].defined(), expected[i].defined());
        if (!results[i].defined()) continue;
        EXPECT_EQ(results[i].scalar_type(), expected[i].scalar_type());
        EXPECT_EQ(results[i].sizes(), expected[i].sizes());
        EXPECT_EQ(results[i].strides(), expected[i].strides());
        EXPECT_TRUE(at::allclose(results[i].to(at::kDouble), expected[i].to(at::kDouble), tolerance,
                                 tolerance, true))
            << (results[i] - expected[i]).abs().max();
      }
    }
  }
}

TEST(Fusion, AChainWithBroadcastingIsOneKernel) {
  constexpr const char* text = R"(
    graph g(%x: f32[6, 37] user_input 0, %b: f32[37] user_input 1, %s: f32[6, 1] user_input 2) {
      %a: f32[6, 37] = aten.add.Tensor(%x, %b, alpha=1)
      %t: f32[6, 37] = aten.tanh(%a)
      %m: f32[6, 37] = aten.mul.Tensor(%t, %s)
      %y: f32[6, 37] = aten.sub.Tensor(%m, %x, alpha=1)
      return %y: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({6, 37}), torch::randn({37}), torch::randn({6, 1})});
}

// Branches begin apart and become one kernel where they meet.
TEST(Fusion, BranchesThatMeetAreOneKernel) {
  constexpr const char* text = R"(
    graph g(%p: f32[300] user_input 0, %g: f32[300] user_input 1, %m: f32[300] user_input 2, %v: f32[300] user_input 3) {
      %m0: f32[300] = aten.mul.Scalar(%m, 0.9)
      %g0: f32[300] = aten.mul.Scalar(%g, 0.1)
      %m1: f32[300] = aten.add.Tensor(%m0, %g0, alpha=1)
      %v0: f32[300] = aten.mul.Scalar(%v, 0.999)
      %g1: f32[300] = aten.mul.Tensor(%g, %g)
      %v1: f32[300] = aten.add.Tensor(%v0, %g1, alpha=1)
      %r: f32[300] = aten.sqrt(%v1)
      %d: f32[300] = aten.div.Tensor(%m1, %r)
      %p1: f32[300] = aten.sub.Tensor(%p, %d, alpha=1)
      return %p1: output 0, %m1: output 1, %v1: output 2
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  const auto t = [] { return torch::rand({300}) + 0.1; };
  expect_equal(text, {t(), t(), t(), t()});
}

// The gradient of a layer norm: what is normalised again joins the group that sums rows.
TEST(Fusion, ABranchJoinsAGroupThatReduces) {
  constexpr const char* text = R"(
    graph g(%g: f32[6, 37] user_input 0, %x: f32[6, 37] user_input 1, %mean: f32[6, 1] user_input 2, %r: f32[6, 1] user_input 3, %w: f32[37] user_input 4) {
      %c: f32[6, 37] = aten.sub.Tensor(%x, %mean, alpha=1)
      %h: f32[6, 37] = aten.mul.Tensor(%c, %r)
      %gw: f32[6, 37] = aten.mul.Tensor(%g, %w)
      %s: f32[6, 1] = aten.sum.dim_IntList(%gw, [-1], true)
      %gh: f32[6, 37] = aten.mul.Tensor(%gw, %h)
      %t: f32[6, 1] = aten.sum.dim_IntList(%gh, [-1], true)
      %a: f32[6, 37] = aten.sub.Tensor(%gw, %s, alpha=1)
      %ht: f32[6, 37] = aten.mul.Tensor(%h, %t)
      %b: f32[6, 37] = aten.sub.Tensor(%a, %ht, alpha=1)
      %y: f32[6, 37] = aten.mul.Tensor(%b, %r)
      return %y: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({6, 37}), torch::randn({6, 37}), torch::randn({6, 1}),
                      torch::randn({6, 1}), torch::randn({37})});
}

// A branch that libtorch reads before the meeting stays a kernel of its own: a path would leave
// the group and come back.
TEST(Fusion, ABranchWithAReaderInBetweenStaysApart) {
  constexpr const char* text = R"(
    graph g(%x: f32[8, 8] user_input 0, %y: f32[8, 8] user_input 1) {
      %a: f32[8, 8] = aten.exp(%x)
      %m: f32[8, 8] = aten.mm(%a, %y)
      %b: f32[8, 8] = aten.sin(%m)
      %c: f32[8, 8] = aten.add.Tensor(%b, %a, alpha=1)
      return %c: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{2, 1}));
  expect_equal(text, {torch::randn({8, 8}), torch::randn({8, 8})});
}

// A group that computes its last value through a transposing view brings that value's loops, not
// those of its first node, into the group that takes it.
TEST(Fusion, ABranchThroughATransposeIsReadAtItsOwnIndex) {
  constexpr const char* text = R"(
    graph g(%x: f32[19, 19] user_input 0, %y: f32[19, 19] user_input 1) {
      %n: f32[19, 19] = aten.neg(%x)
      %t: f32[19, 19] (1, 19) = aten.t(%n)
      %a: f32[19, 19] (1, 19) = aten.mul.Scalar(%t, 2)
      %b: f32[19, 19] = aten.exp(%y)
      %s: f32[19, 19] = aten.add.Tensor(%b, %a, alpha=1)
      return %s: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({19, 19}), torch::randn({19, 19})});
}

// One index per value: a node that wants a value at two of them reads it from memory.
TEST(Fusion, ABranchReadAtTwoIndicesStaysApart) {
  constexpr const char* text = R"(
    graph g(%x: f32[19, 19] user_input 0, %y: f32[19, 19] user_input 1) {
      %n: f32[19, 19] = aten.neg(%x)
      %t: f32[19, 19] (1, 19) = aten.t(%n)
      %b: f32[19, 19] = aten.exp(%y)
      %c: bool[19, 19] = aten.gt.Scalar(%b, 1)
      %w: f32[19, 19] = aten.where.self(%c, %n, %t)
      return %w: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{2, 0}));
  expect_equal(text, {torch::randn({19, 19}), torch::randn({19, 19})});
}

TEST(Fusion, ASoftmaxIsOneKernel) {
  constexpr const char* text = R"(
    graph g(%x: f32[6, 37] user_input 0) {
      %m: f32[6, 1] = aten.amax(%x, [-1], true)
      %s: f32[6, 37] = aten.sub.Tensor(%x, %m, alpha=1)
      %e: f32[6, 37] = aten.exp(%s)
      %t: f32[6, 1] = aten.sum.dim_IntList(%e, [-1], true)
      %y: f32[6, 37] = aten.div.Tensor(%e, %t)
      return %y: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({6, 37})});
}

// What a reader of dumps sees: three sweeps over a row, the exponentials kept beside it.
TEST(Fusion, TheLoopsOfASoftmax) {
  auto judge = backends::eager::make_backend();
  auto compiler = make_reference_compiler();
  const HostList list = make_host_list(ir::parse(R"(
    graph g(%x: f32[2, 3, 37] user_input 0) {
      %m: f32[2, 3, 1] = aten.amax(%x, [-1], true)
      %s: f32[2, 3, 37] = aten.sub.Tensor(%x, %m, alpha=1)
      %e: f32[2, 3, 37] = aten.exp(%s)
      %t: f32[2, 3, 1] = aten.sum.dim_IntList(%e, [-1], true)
      %y: f32[2, 3, 37] = aten.div.Tensor(%e, %t)
      return %y: output 0
    })"),
                                       {}, *compiler, *judge);
  ASSERT_EQ(list.kernels.size(), 1u);
  EXPECT_EQ(print(list.kernels[0]), R"(kernel k0 {
  in b_x: f32[222]
  scratch row_e: f32[37]
  out b_y: f32[222]
  kept i0: 6
  reduced j0: 37
  inner {
    v0: f32 = load b_x[37*i0 + j0]
    v1: f32 = reduce_max v0
  }
  inner {
    v2: f32 = load b_x[37*i0 + j0]
    v3: f32 = sub v2, v1
    v4: f32 = exp v3
    store row_e[j0], v4
    v6: f32 = reduce_sum v4
  }
  inner {
    v7: f32 = load row_e[j0]
    v8: f32 = div v7, v6
    store b_y[37*i0 + j0], v8
  }
}
)");
}

TEST(Fusion, ANormWithStatisticsAsResultsIsOneKernel) {
  constexpr const char* text = R"(
    graph g(%x: f32[2, 5, 24] user_input 0, %w: f32[24] user_input 1, %b: f32[24] user_input 2) {
      %mean: f32[2, 5, 1] = aten.mean.dim(%x, [-1], true)
      %c: f32[2, 5, 24] = aten.sub.Tensor(%x, %mean, alpha=1)
      %q: f32[2, 5, 24] = aten.mul.Tensor(%c, %c)
      %v: f32[2, 5, 1] = aten.mean.dim(%q, [-1], true)
      %ve: f32[2, 5, 1] = aten.add.Scalar(%v, 1e-05, alpha=1)
      %r: f32[2, 5, 1] = aten.rsqrt(%ve)
      %n: f32[2, 5, 24] = aten.mul.Tensor(%c, %r)
      %nw: f32[2, 5, 24] = aten.mul.Tensor(%n, %w)
      %y: f32[2, 5, 24] = aten.add.Tensor(%nw, %b, alpha=1)
      return %y: output 0, %mean: saved 0, %r: saved 1
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({2, 5, 24}), torch::randn({24}), torch::randn({24})});
}

// A matrix product in between: the kernels before and after it stay apart.
TEST(Fusion, APathThroughLibtorchKeepsKernelsApart) {
  constexpr const char* text = R"(
    graph g(%x: f32[6, 8] user_input 0, %w: f32[8, 8] user_input 1) {
      %a: f32[6, 8] = aten.relu(%x)
      %p: f32[6, 8] = aten.mm(%a, %w)
      %y: f32[6, 8] = aten.add.Tensor(%a, %p, alpha=1)
      %z: f32[6, 8] = aten.mul.Tensor(%y, %a)
      return %z: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{2, 1}));
  expect_equal(text, {torch::randn({6, 8}), torch::randn({8, 8})});
}

TEST(Fusion, ViewsAreIndexArithmetic) {
  constexpr const char* text = R"(
    graph g(%x: f32[2, 6, 12] user_input 0, %y: f32[2, 3, 6, 4] user_input 1) {
      %a: f32[2, 6, 12] = aten.sin(%x)
      %v: f32[2, 6, 3, 4] = aten.view(%a, [2, 6, 3, 4])
      %t: f32[2, 3, 6, 4] (72, 4, 12, 1) = aten.transpose.int(%v, 1, 2)
      %s: f32[2, 3, 6, 4] (72, 4, 12, 1) = aten.mul.Tensor(%t, %y)
      %r: f32[2, 3, 6] = aten.sum.dim_IntList(%s, [-1], false)
      return %s: output 0, %r: output 1
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({2, 6, 12}), torch::randn({2, 3, 6, 4})});
}

TEST(Fusion, SlicesAndSelectionsReadMemoryInPlace) {
  constexpr const char* text = R"(
    graph g(%x: f32[4, 12] user_input 0) {
      %a: f32[4, 6] (12, 1) = aten.slice.Tensor(%x, 1, 0, 6, 1)
      %b: f32[4, 6] (12, 1) = aten.slice.Tensor(%x, 1, 6, 9223372036854775807, 1)
      %g: f32[4, 6] = aten.sigmoid(%b)
      %y: f32[4, 6] = aten.mul.Tensor(%a, %g)
      %r: f32[6] = aten.select.int(%y, 0, 2)
      %z: f32[6] = aten.neg(%r)
      return %y: output 0, %z: output 1
    })";
  expect_equal(text, {torch::randn({4, 12})});
}

TEST(Fusion, ColumnAndFullReductions) {
  constexpr const char* text = R"(
    graph g(%x: f32[19, 37] user_input 0, %m: bool[19, 37] user_input 1) {
      %z: f32[] = aten.scalar_tensor(0.0, dtype=f32)
      %g: f32[19, 37] = aten.where.self(%m, %x, %z)
      %c: f32[37] = aten.sum.dim_IntList(%g, [0], false)
      %q: f32[19, 37] = aten.mul.Tensor(%g, %g)
      %t: f32[] = aten.sum(%q)
      %k: i64[37] = aten.argmax(%x, 0, false)
      %v: f32[19], %i: i64[19] = aten.max.dim(%x, 1, false)
      %n: i64[] = aten.sum(%m)
      %any: bool[19] = aten.any.dim(%m, 1, false)
      return %g: output 0, %c: output 1, %t: output 2, %k: output 3, %v: output 4, %i: output 5,
          %n: output 6, %any: output 7
    })";
  expect_equal(text, {torch::randn({19, 37}), torch::rand({19, 37}) > 0.5});
}

// The gradient of a mean: one number over a whole tensor, wanted inside a kernel that comes later.
TEST(Fusion, ANumberSpreadOverATensorJoinsItsReader) {
  constexpr const char* text = R"(
    graph g(%s: f32[] user_input 0, %x: f32[19, 37] user_input 1) {
      %w: f32[19, 37] (0, 0) = aten.expand(%s, [19, 37])
      %d: f32[19, 37] = aten.div.Scalar(%w, 37)
      %c: f32[19, 37] = aten.cos(%x)
      %m: f32[19, 37] = aten.mul.Tensor(%c, %x)
      %y: f32[19, 37] = aten.add.Tensor(%m, %d, alpha=1)
      %t: f32[37] = aten.sum.dim_IntList(%y, [0], false)
      return %t: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(text, {torch::randn({}), torch::randn({19, 37})});
}

// It is made before the write that it must not see, and for libtorch in memory.
TEST(Fusion, ASpreadNumberThatNobodyFusesIsAKernel) {
  constexpr const char* text = R"(
    graph g(%s: f32[] user_input 0, %x: f32[37, 19] user_input 1) {
      %w: f32[19, 37] (0, 0) = aten.expand(%s, [19, 37])
      %d: f32[19, 37] = aten.div.Scalar(%w, 37)
      %p: f32[19, 19] = aten.mm(%d, %x)
      %e: f32[19, 37] = aten.mul.Scalar(%w, 2)
      return %p: output 0, %e: output 1
    })";
  EXPECT_EQ(counts(text), (Counts{2, 1}));
  expect_equal(text, {torch::randn({}), torch::randn({37, 19})});
}

TEST(Fusion, LoadsThroughIndicesAndMasks) {
  constexpr const char* text = R"(
    graph g(%w: f32[11, 8] user_input 0, %i: i64[2, 3] user_input 1, %p: f32[3, 8] user_input 2) {
      %e: f32[2, 3, 8] = aten.embedding(%w, %i)
      %s: f32[2, 3, 8] = aten.add.Tensor(%e, %p, alpha=1)
      %c: f32[2, 3, 16] = aten.cat([%s, %e], -1)
      %d: f32[2, 3, 16] = aten.exp(%c)
      %q: f32[2, 5, 16] = aten.constant_pad_nd(%d, [0, 0, 1, 1], 0.5)
      %f: f32[2, 5, 16] = aten.neg(%q)
      %x: f32[2, 5, 16] = aten.flip(%f, [1])
      %y: f32[2, 5, 16] = aten.mul.Tensor(%x, %f)
      return %y: output 0
    })";
  expect_equal(text, {torch::randn({11, 8}), torch::randint(11, {2, 3}), torch::randn({3, 8})});
}

TEST(Fusion, IntermediateRoundingOf16BitFloats) {
  constexpr const char* text = R"(
    graph g(%x: bf16[6, 37] user_input 0, %y: bf16[6, 37] user_input 1) {
      %a: bf16[6, 37] = aten.mul.Tensor(%x, %y)
      %b: bf16[6, 37] = aten.add.Tensor(%a, %x, alpha=1)
      %c: bf16[6, 37] = aten.add.Scalar(%b, 0.3, alpha=1)
      %d: bf16[6, 37] = aten.div.Tensor(%c, %y)
      %f: f32[6, 37] = aten._to_copy(%d, dtype=f32)
      return %f: output 0
    })";
  EXPECT_EQ(counts(text), (Counts{1, 0}));
  expect_equal(
      text, {torch::randn({6, 37}).to(at::kBFloat16), torch::randn({6, 37}).to(at::kBFloat16)}, 0);
}

}  // namespace
}  // namespace tandem::loops
