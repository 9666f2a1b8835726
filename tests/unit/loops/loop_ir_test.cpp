#include "loops/ir/loop_ir.h"

#include "loops/ir/kernel_compiler.h"
#include "support/error_text.h"
#include "tandem/error.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::loops {
namespace {

using at::Tensor;

constexpr const char* kSoftmax = R"(kernel softmax {
  in x: f32[60]
  out y: f32[60]
  scratch e: f32[15]
  kept i: 4
  reduced j: 15
  inner {
    v0: f32 = load x[15*i + j]
    v1: f32 = reduce_max v0
  }
  inner {
    v2: f32 = load x[15*i + j]
    v3: f32 = sub v2, v1
    v4: f32 = exp v3
    store e[j], v4
    v6: f32 = reduce_sum v4
  }
  outer {
    v7: f32 = reciprocal v6
  }
  inner {
    v8: f32 = load e[j]
    v9: f32 = mul v8, v7
    store y[15*i + j], v9
  }
}
)";

constexpr const char* kGather = R"(kernel rows {
  in places: i64[3]
  in table: bf16[20]
  out picked: bf16[12]
  kept i: 3
  kept j: 4
  outer {
    v0: i64 = load places[i]
    v1: i64 = constant 0
    v2: bool = lt v0, v1
    v3: i64 = constant 5
    v4: i64 = add v0, v3
    v5: i64 = select v2, v4, v0
    v6: i64 = check_index v5, 5
    v7: i64 = index j
    v8: bool = ne v7, v1
    v9: f32 = load table[j + 4*v6] if v8
    v10: f32 = constant 0.1
    v11: f32 = add v9, v10
    v12: f32 = round_bf16 v11
    store picked[4*i + j], v12
  }
}
)";

bool run(const char* text, std::vector<Tensor> buffers) {
  const Kernel kernel = parse_kernel(text);
  verify(kernel);
  const Kernel* kernels[] = {&kernel};
  std::vector<void*> pointers;
  for (const Tensor& buffer : buffers)
    pointers.push_back(buffer.defined() ? buffer.data_ptr() : nullptr);
  const auto compiler = make_reference_compiler();
  const c10::Stream stream = compiler->target().stream(at::kCPU);
  return compiler->compile(kernels)[0].kernel->launch(pointers, stream);
}

TEST(LoopIr, TextReadsBack) {
  for (const char* text : {kSoftmax, kGather}) EXPECT_EQ(print(parse_kernel(text)), text);
}

TEST(LoopIr, RunsThePhasesOfASoftmax) {
  const Tensor x = torch::randn({4, 15}), y = torch::empty({4, 15});

  EXPECT_TRUE(run(kSoftmax, {x, y, Tensor()}));

  EXPECT_TRUE(at::allclose(y, at::softmax(x, 1)));
}

TEST(LoopIr, ReadsThroughAnIndexAndUnderAMask) {
  const Tensor table = torch::randn({5, 4}).to(at::kBFloat16), places = torch::tensor({4, -5, 2});
  const Tensor picked = torch::empty({3, 4}, at::kBFloat16);

  EXPECT_TRUE(run(kGather, {places, table, picked}));

  Tensor expected = table.index({torch::tensor({4, 0, 2})});
  expected.select(1, 0).zero_();
  // Added in float32 and rounded once; eager would round the 0.1, too.
  EXPECT_TRUE(picked.equal((expected.to(at::kFloat) + 0.1).to(at::kBFloat16)));
}

TEST(LoopIr, SaysThatAnIndexIsOutOfRange) {
  const Tensor table = torch::randn({5, 4}).to(at::kBFloat16);
  const Tensor picked = torch::empty({3, 4}, at::kBFloat16);

  EXPECT_FALSE(run(kGather, {torch::tensor({1, 5, 2}), table, picked}));
  EXPECT_FALSE(run(kGather, {torch::tensor({1, -6, 2}), table, picked}));
}

// Names do not make a kernel another one; anything else does.
TEST(LoopIr, KeyIgnoresNamesOnly) {
  Kernel kernel = parse_kernel(kSoftmax);
  const std::string key = structural_key(kernel);

  kernel.name = "other";
  kernel.dims[0].name = "row";
  EXPECT_EQ(structural_key(kernel), key);

  Kernel longer = kernel, moved = kernel, changed = kernel;
  longer.dims[0].extent = 3;
  moved.accesses[0].strides[1] = 2;
  changed.body[4].op = LoopOp::Add;
  for (const Kernel& other : {longer, moved, changed}) EXPECT_NE(structural_key(other), key);
}

struct BadText {
  const char* what;
  const char* from;
  const char* to;
  const char* rule;
};

TEST(LoopIr, VerifierNamesTheBrokenRule) {
  const BadText cases[] = {
      {"an inner value read in a later phase", "sub v2, v1", "sub v0, v1",
       "v3 reads v0, which is not visible there"},
      {"a reduction read in its own phase", "store e[j], v4\n    v6: f32 = reduce_sum v4",
       "v5: f32 = reduce_sum v4\n    v6: f32 = add v5, v4",
       "v6 reads v5, which is not visible there"},
      {"an access outside its buffer", "store y[15*i + j], v9", "store y[15*i + j + 1], v9",
       "line 10 touches elements 1 to 60 of y, which has 60"},
      {"a reduced dim in an outer phase", "v7: f32 = reciprocal v6", "v7: f32 = load x[j]",
       "v7 depends on a reduced dim in an outer phase"},
      {"a store to an input", "store y[15*i + j], v9", "store x[15*i + j], v9",
       "line 10 stores to input x"},
      {"dtypes that differ", "v4: f32 = exp v3", "v4: f64 = exp v3",
       "v4 (exp): floats of one dtype"},
      {"scratch shared by rows", "store e[j], v4", "store e[i], v4",
       "line 5 strides scratch e by a kept dim"},
  };
  for (const BadText& bad : cases) {
    SCOPED_TRACE(bad.what);
    std::string text = kSoftmax;
    const size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, std::string(bad.from).size(), bad.to);
    const std::vector<std::string> found = violations(parse_kernel(text));
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front(), bad.rule);
  }
}

TEST(LoopIr, ParserNamesThePlace) {
  EXPECT_NE(
      test::error_text<UserError>([] {
        parse_kernel("kernel k {\n  in x: f32[4]\n  outer {\n    v0: f32 = load z[0]\n  }\n}");
      }).find("line 4, column 20: no buffer is called z"),
      std::string::npos);
}

}  // namespace
}  // namespace tandem::loops
