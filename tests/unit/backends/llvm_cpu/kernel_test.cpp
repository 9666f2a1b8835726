#include "backends/llvm_cpu/split_reduction.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

// Kernels of the forms that fusion makes, generated for every set of instructions, against the
// reference interpreter. Sizes leave a rest in every vector width.
namespace tandem {
namespace {

using loops::Kernel;
using loops::parse_kernel;
using test::KernelMemory;
using Values = KernelMemory::Values;

void expect_as_reference(const std::string& text, Values values, double units) {
  const Kernel kernel = parse_kernel(text);
  loops::verify(kernel);
  for (backends::llvm_cpu::InstructionSet set : test::instruction_sets()) {
    SCOPED_TRACE(std::string(name(set)));
    EXPECT_EQ(test::difference_from_reference(kernel, set, values, units), "") << text;
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(CpuKernel, PointwiseWithBroadcasting) {
  for (const char* size : {"1", "7", "64", "67", "5001"}) {
    expect_as_reference(replaced(R"(kernel k {
      in x: f32[$]
      in s: f32[1]
      out y: f32[$]
      kept i: $
      outer {
        v0: f32 = load x[i]
        v1: f32 = load s[0]
        v2: f32 = mul v0, v1
        v3: f32 = add v2, v0
        store y[i], v3
      }
    })",
                                 "$", size),
                        Values::Anything, 0);
  }
}

TEST(CpuKernel, SeveralDimsAndATransposedOperand) {
  expect_as_reference(R"(kernel k {
    in x: f32[1650]
    in t: f32[1650]
    out y: f32[1650]
    kept i: 30
    kept j: 55
    outer {
      v0: f32 = load x[55*i + j]
      v1: f32 = load t[i + 30*j]
      v2: f32 = add v0, v1
      store y[55*i + j], v2
    }
  })",
                      Values::Anything, 0);
}

constexpr const char* kSoftmax = R"(kernel softmax {
  in x: f32[$total]
  out y: f32[$total]
  kept i: 9
  reduced j: $
  inner {
    v0: f32 = load x[$*i + j]
    v1: f32 = reduce_max v0
  }
  inner {
    v2: f32 = load x[$*i + j]
    v3: f32 = sub v2, v1
    v4: f32 = exp v3
    v5: f32 = reduce_sum v4
  }
  inner {
    v6: f32 = load x[$*i + j]
    v7: f32 = sub v6, v1
    v8: f32 = exp v7
    v9: f32 = div v8, v5
    store y[$*i + j], v9
  }
})";

TEST(CpuKernel, SoftmaxOverRows) {
  for (int size : {1, 3, 16, 64, 77, 128, 1000}) {
    std::string text = replaced(kSoftmax, "$total", std::to_string(9 * size));
    expect_as_reference(replaced(text, "$", std::to_string(size)), Values::Moderate, 16);
  }
}

TEST(CpuKernel, LayerNormWithAffine) {
  expect_as_reference(R"(kernel k {
    in x: f32[2100]
    in w: f32[300]
    out y: f32[2100]
    out m: f32[7]
    kept i: 7
    reduced j: 300
    inner {
      v0: f32 = load x[300*i + j]
      v1: f32 = reduce_sum v0
    }
    outer {
      v2: f32 = constant 300
      v3: f32 = div v1, v2
      store m[i], v3
    }
    inner {
      v5: f32 = load x[300*i + j]
      v6: f32 = sub v5, v3
      v7: f32 = mul v6, v6
      v8: f32 = reduce_sum v7
    }
    outer {
      v9: f32 = div v8, v2
      v10: f32 = constant 1e-05
      v11: f32 = add v9, v10
      v12: f32 = rsqrt v11
    }
    inner {
      v13: f32 = load x[300*i + j]
      v14: f32 = sub v13, v3
      v15: f32 = mul v14, v12
      v16: f32 = load w[j]
      v17: f32 = mul v15, v16
      store y[300*i + j], v17
    }
  })",
                      Values::WholeSmall, 24);
}

TEST(CpuKernel, ColumnSumsAreVectorsOfColumns) {
  for (const char* columns : {"1", "5", "64", "131"}) {
    std::string text = R"(kernel k {
      in x: f32[$total]
      out y: f32[$]
      kept j: $
      reduced i: 200
      inner {
        v0: f32 = load x[$*i + j]
        v1: f32 = reduce_sum v0
      }
      outer {
        store y[j], v1
      }
    })";
    text = replaced(text, "$total", std::to_string(200 * std::stoi(columns)));
    expect_as_reference(replaced(text, "$", columns), Values::WholeSmall, 0);
  }
}

TEST(CpuKernel, FullReductionsOfEveryKind) {
  for (const char* op : {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"}) {
    for (const char* dtype : {"f32", "f64", "i64", "i32"}) {
      expect_as_reference(replaced(replaced(R"(kernel k {
        in x: DT[977]
        out y: DT[1]
        reduced i: 977
        inner {
          v0: DT = load x[i]
          v1: DT = OP v0
        }
        outer {
          store y[0], v1
        }
      })",
                                            "OP", op),
                                   "DT", dtype),
                          Values::WholeSmall, 0);
    }
  }
}

TEST(CpuKernel, MaximaKeepNan) {
  expect_as_reference(R"(kernel k {
    in x: f32[1200]
    out y: f32[4]
    out z: f32[4]
    kept i: 4
    reduced j: 300
    inner {
      v0: f32 = load x[300*i + j]
      v1: f32 = reduce_max v0
      v2: f32 = reduce_min v0
    }
    outer {
      store y[i], v1
      store z[i], v2
    }
  })",
                      Values::Anything, 0);
}

// LLVM 19 would make x > 0 of |x| > 0 where the comparison is joined with one for NaN.
TEST(CpuKernel, AMagnitudeIsComparedAsAMagnitude) {
  for (const char* dtype : {"f32", "f64"}) {
    expect_as_reference(replaced(R"(kernel k {
      in x: $[67]
      out y: $[67]
      kept i: 67
      outer {
        v0: $ = load x[i]
        v1: $ = abs v0
        v2: $ = constant 0
        v3: $ = max v1, v2
        store y[i], v3
      }
    })",
                                 "$", dtype),
                        Values::Anything, 0);
  }
}

TEST(CpuKernel, ArgmaxTakesTheFirstOfEquals) {
  for (const char* shape : {"100*i + j", "i + 13*j"}) {
    for (const char* values : {"whole", "any"}) {
      expect_as_reference(replaced(R"(kernel k {
        in x: f32[1300]
        out y: i64[13]
        out z: i64[13]
        kept i: 13
        reduced j: 100
        inner {
          v0: f32 = load x[PLACE]
          v1: i64 = index j
          v2: i64 = reduce_argmax v0, v1
          v3: i64 = reduce_argmin v0, v1
        }
        outer {
          store y[i], v2
          store z[i], v3
        }
      })",
                                   "PLACE", shape),
                          values[0] == 'w' ? Values::WholeSmall : Values::Anything, 0);
    }
  }
}

TEST(CpuKernel, RowsAreReadThroughIndices) {
  const std::string text = R"(kernel k {
    in table: f32[330]
    in rows: i64[21]
    out y: f32[693]
    kept i: 21
    kept j: 33
    outer {
      v0: i64 = load rows[i]
      v1: i64 = check_index v0, 10
      v2: f32 = load table[j + 33*v1]
      store y[33*i + j], v2
    }
  })";
  const Kernel kernel = parse_kernel(text);
  for (auto set : test::instruction_sets()) {
    const Kernel* const kernels[] = {&kernel};
    const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(kernels);
    ASSERT_TRUE(made[0].kernel) << made[0].reason;
    KernelMemory memory(kernel, Values::Moderate, 3);
    for (int i = 0; i < 21; ++i) memory.data<int64_t>(1)[i] = (i * 7) % 10;
    EXPECT_TRUE(made[0].kernel->launch(memory.pointers(), test::kHostStream));
    for (int i = 0; i < 21; ++i)
      for (int j = 0; j < 33; ++j)
        ASSERT_EQ(memory.data<float>(2)[33 * i + j],
                  memory.data<float>(0)[33 * ((i * 7) % 10) + j]);
    for (int64_t wrong : {int64_t{10}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
      memory.data<int64_t>(1)[20] = wrong;
      EXPECT_FALSE(made[0].kernel->launch(memory.pointers(), test::kHostStream)) << wrong;
    }
  }
}

TEST(CpuKernel, GatherPerElementChecksOnlyTheElementsThatExist) {
  const std::string text = R"(kernel k {
    in x: f32[50]
    in at: i64[21]
    out y: f32[21]
    kept i: 21
    outer {
      v0: i64 = load at[i]
      v1: i64 = check_index v0, 50
      v2: f32 = load x[0 + 1*v1]
      store y[i], v2
    }
  })";
  const Kernel kernel = parse_kernel(text);
  for (auto set : test::instruction_sets()) {
    const Kernel* const kernels[] = {&kernel};
    const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(kernels);
    ASSERT_TRUE(made[0].kernel) << made[0].reason;
    KernelMemory memory(kernel, Values::Moderate, 3);
    for (int i = 0; i < 21; ++i) memory.data<int64_t>(1)[i] = 49 - i;
    EXPECT_TRUE(made[0].kernel->launch(memory.pointers(), test::kHostStream));
    for (int i = 0; i < 21; ++i) ASSERT_EQ(memory.data<float>(2)[i], memory.data<float>(0)[49 - i]);
    memory.data<int64_t>(1)[20] = 50;
    EXPECT_FALSE(made[0].kernel->launch(memory.pointers(), test::kHostStream));
  }
}

TEST(CpuKernel, MaskedLoadsReadNothingElse) {
  expect_as_reference(R"(kernel pad {
    in x: f32[40]
    out y: f32[60]
    kept i: 60
    outer {
      v0: i64 = index i
      v1: i64 = constant 10
      v2: bool = ge v0, v1
      v3: i64 = constant 50
      v4: bool = lt v0, v3
      v5: bool = and v2, v4
      v6: f32 = load x[-10 + i] if v5
      store y[i], v6
    }
  })",
                      Values::Moderate, 0);
}

TEST(CpuKernel, ScratchRowsBelongToTheirIndex) {
  for (const char* place : {"70*i + j", "i + 24*j"}) {
    expect_as_reference(replaced(R"(kernel k {
      in x: f32[1680]
      out y: f32[1680]
      scratch t: f32[70]
      kept i: 24
      reduced j: 70
      inner {
        v0: f32 = load x[PLACE]
        v1: f32 = mul v0, v0
        store t[j], v1
        v3: f32 = reduce_sum v1
      }
      inner {
        v4: f32 = load t[j]
        v5: f32 = sub v4, v3
        store y[PLACE], v5
      }
    })",
                                 "PLACE", place),
                        Values::WholeSmall, 0);
  }
}

TEST(CpuKernel, SixteenBitFloatsAreWidenedAndRounded) {
  for (const char* dtype : {"bf16", "f16"}) {
    expect_as_reference(replaced(R"(kernel k {
      in x: DT[333]
      in z: DT[333]
      out y: DT[333]
      kept i: 333
      outer {
        v0: f32 = load x[i]
        v1: f32 = load z[i]
        v2: f32 = mul v0, v1
        v3: f32 = round_DT v2
        v4: f32 = add v3, v0
        store y[i], v4
      }
    })",
                                 "DT", dtype),
                        Values::Anything, 0);
  }
}

TEST(CpuKernel, NothingIsContracted) {
  // With a fused multiply-add x*x - p would be the rounding error of the product, not zero.
  expect_as_reference(R"(kernel k {
    in x: f32[500]
    out y: f32[500]
    kept i: 500
    outer {
      v0: f32 = load x[i]
      v1: f32 = mul v0, v0
      v2: f32 = mul v0, v1
      v3: f32 = add v2, v1
      v4: f32 = sub v3, v0
      store y[i], v4
    }
  })",
                      Values::Moderate, 0);
}

TEST(CpuKernel, KernelsWithoutLoopsRun) {
  expect_as_reference(R"(kernel k {
    in x: f32[1]
    out y: f32[1]
    outer {
      v0: f32 = load x[0]
      v1: f32 = exp v0
      store y[0], v1
    }
  })",
                      Values::Moderate, 2);
}

TEST(CpuKernel, ReductionsToFewResultsAreCutForThreads) {
  // Rows and columns, with what comes before and after and a store on the way.
  for (const char* place : {"64000*i + j", "i + 3*j"}) {
    const std::string text = replaced(R"(kernel k {
      in x: f32[192000]
      in w: f32[3]
      out y: f32[3]
      out z: f32[192000]
      kept i: 3
      reduced j: 64000
      outer {
        v0: f32 = load w[i]
      }
      inner {
        v1: f32 = load x[PLACE]
        v2: f32 = sub v1, v0
        store z[PLACE], v2
        v4: f32 = reduce_sum v2
        v5: f32 = reduce_max v2
      }
      outer {
        v6: f32 = add v4, v5
        v7: f32 = mul v6, v0
        store y[i], v7
      }
    })",
                                      "PLACE", place);
    const auto split = backends::llvm_cpu::split_reduction(parse_kernel(text));
    ASSERT_TRUE(split);
    EXPECT_TRUE(violations(split->partial).empty()) << violations(split->partial)[0];
    EXPECT_TRUE(violations(split->total).empty()) << violations(split->total)[0];
    expect_as_reference(text, Values::WholeSmall, 0);
  }
}

TEST(CpuKernel, LongFloatSumsKeepTheirPrecision) {
  const Kernel kernel = parse_kernel(R"(kernel k {
    in x: f32[1000000]
    out y: f32[1]
    reduced i: 1000000
    inner {
      v0: f32 = load x[i]
      v1: f32 = reduce_sum v0
    }
    outer {
      store y[0], v1
    }
  })");
  for (auto set : test::instruction_sets()) {
    const Kernel* const kernels[] = {&kernel};
    const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(kernels);
    KernelMemory memory(kernel, Values::Moderate, 5);
    double exact = 0;
    for (int i = 0; i < 1000000; ++i) {
      memory.data<float>(0)[i] = std::abs(memory.data<float>(0)[i]);
      exact += static_cast<double>(memory.data<float>(0)[i]);
    }
    ASSERT_TRUE(made[0].kernel->launch(memory.pointers(), test::kHostStream));
    EXPECT_NEAR(memory.data<float>(1)[0], exact, 2 * exact * 0x1p-24);
  }
}

}  // namespace
}  // namespace tandem
