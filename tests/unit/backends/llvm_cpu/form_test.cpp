// Code that serves several sizes: the bits of code for one, generated once for each form.
#include "backends/llvm_cpu/form.h"

#include "backends/llvm_cpu/split_reduction.h"
#include "base/error.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using backends::llvm_cpu::filled_in;
using backends::llvm_cpu::Form;
using backends::llvm_cpu::form_key;
using backends::llvm_cpu::form_of;
using backends::llvm_cpu::InstructionSet;
using backends::llvm_cpu::make_cpu_compiler;
using backends::llvm_cpu::Schedule;
using loops::Kernel;
using loops::parse_kernel;
using loops::Sizes;
using test::KernelMemory;
using Values = KernelMemory::Values;

struct Size {
  int64_t n = 1, m = 1;
};

/// A kernel at sizes n and m: in the text, N, M and NM stand for them and their product.
Kernel at_size(std::string text, Size size) {
  const auto put = [&](const std::string& from, int64_t to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
      text.replace(at, from.size(), std::to_string(to));
  };
  put("NM", size.n * size.m);
  put("N", size.n);
  put("M", size.m);
  const Kernel kernel = parse_kernel(text);
  loops::verify(kernel);
  return kernel;
}

std::vector<Schedule> schedules(const Kernel& kernel, InstructionSet set, Sizes sizes) {
  const Kernel merged = backends::llvm_cpu::merge_dims(kernel);
  if (const auto split = backends::llvm_cpu::split_reduction(merged))
    return {schedule(split->partial, set, sizes), schedule(split->total, set, sizes)};
  return {schedule(merged, set, sizes)};
}

loops::KernelCompiler::Result compile(const Kernel& kernel, InstructionSet set, Sizes sizes) {
  const Kernel* const kernels[] = {&kernel};
  return make_cpu_compiler(set)->compile(kernels, sizes)[0];
}

/// Runs both on equal memory; indices are made to fit.
void expect_same_bits(const Kernel& kernel, const loops::CompiledKernel& got,
                      const loops::CompiledKernel& expected) {
  KernelMemory mine(kernel, Values::Moderate, 7), theirs(kernel, Values::Moderate, 7);
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    if (kernel.buffers[b].name != "rows") continue;
    for (int64_t i = 0; i < kernel.buffers[b].elements; ++i)
      mine.data<int64_t>(b)[i] = theirs.data<int64_t>(b)[i] = 5 * i % 10;
  }
  ASSERT_TRUE(got.launch(mine.pointers(), test::kHostStream));
  ASSERT_TRUE(expected.launch(theirs.pointers(), test::kHostStream));
  for (size_t b = 0; b < kernel.buffers.size(); ++b)
    ASSERT_EQ(mine.bytes(b), theirs.bytes(b)) << kernel.buffers[b].name;
}

/// Compiles the kernel at each size, in turn: as often as it has forms, code is generated, and each
/// kernel has the bits of the one that is for its size alone.
void expect_shared(const std::string& text, const std::vector<Size>& sizes, size_t forms) {
  for (InstructionSet set : test::instruction_sets()) {
    std::vector<std::shared_ptr<const loops::CompiledKernel>> held;
    std::set<std::string> known;
    for (const Size& size : sizes) {
      SCOPED_TRACE(base::str(name(set), ", ", size.n, " x ", size.m));
      const Kernel kernel = at_size(text, size);
      int missing = 0;
      for (const Schedule& walk : schedules(kernel, set, Sizes::Vary))
        missing += known.insert(form_key(form_of(walk).schedule)).second;
      const auto made = compile(kernel, set, Sizes::Vary);
      ASSERT_TRUE(made.kernel) << made.reason;
      EXPECT_EQ(made.generated, missing);
      held.push_back(made.kernel);
      const auto fixed = compile(kernel, set, Sizes::Fixed);
      EXPECT_NE(fixed.kernel, made.kernel);
      expect_same_bits(kernel, *made.kernel, *fixed.kernel);
    }
    EXPECT_LE(known.size(), forms) << name(set);
  }
}

const std::vector<Size> kSizes = {{64, 128},  {7, 131}, {33, 257}, {101, 67}, {16, 512},
                                  {29, 2048}, {9, 37},  {50, 97},  {8, 64}};

TEST(Form, PointwiseWithBroadcasting) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    in b: f32[M]
    in s: f32[1]
    out y: f32[NM]
    kept i: N
    kept j: M
    outer {
      v0: f32 = load x[M*i + j]
      v1: f32 = load b[j]
      v2: f32 = mul v0, v1
      v3: f32 = load s[0]
      v4: f32 = add v2, v3
      v5: f32 = tanh v4
      store y[M*i + j], v5
    }
  })",
                kSizes, 2);
}

// Chunks of a long dim are counted, one chunk is not.
TEST(Form, LongWalksInChunks) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    in b: f32[N]
    out y: f32[NM]
    kept i: N
    kept j: M
    outer {
      v0: f32 = load x[M*i + j]
      v1: f32 = load b[i]
      v2: f32 = add v0, v1
      store y[M*i + j], v2
    }
  })",
                {{3, 5001}, {1, 4096}, {2, 7001}, {11, 2049}, {3, 100}, {5, 2048}}, 4);
}

TEST(Form, TransposedOperandsAndResults) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    in t: f32[NM]
    out y: f32[NM]
    out z: f32[NM]
    kept i: N
    kept j: M
    outer {
      v0: f32 = load x[M*i + j]
      v1: f32 = load t[i + N*j]
      v2: f32 = add v0, v1
      store y[M*i + j], v2
      v4: f32 = mul v0, v1
      store z[i + N*j], v4
    }
  })",
                kSizes, 4);
}

TEST(Form, PermutedDims) {
  expect_shared(R"(kernel k {
    in x: bf16[NM]
    out y: f16[NM]
    kept a: 1
    kept i: N
    kept j: M
    outer {
      v0: i64 = index a
      v1: f32 = cast v0
      v2: f32 = load x[i + N*j]
      v3: f32 = add v1, v2
      store y[M*i + j], v3
    }
  })",
                kSizes, 4);
}

TEST(Form, SoftmaxOverRows) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    out y: f32[NM]
    kept i: N
    reduced j: M
    inner {
      v0: f32 = load x[M*i + j]
      v1: f32 = reduce_max v0
    }
    inner {
      v2: f32 = load x[M*i + j]
      v3: f32 = sub v2, v1
      v4: f32 = exp v3
      v5: f32 = reduce_sum v4
    }
    inner {
      v6: f32 = load x[M*i + j]
      v7: f32 = sub v6, v1
      v8: f32 = exp v7
      v9: f32 = div v8, v5
      store y[M*i + j], v9
    }
  })",
                kSizes, 4);
}

// The number of elements stands in the body, too: whole, and as what to multiply with.
TEST(Form, NumbersOfTheBodyThatFollowFromSizes) {
  for (const char* dtype : {"f32", "f64"}) {
    std::string text = R"(kernel k {
      in x: DT[NM]
      in w: DT[M]
      out y: DT[NM]
      kept i: N
      reduced j: M
      inner {
        v0: DT = load x[M*i + j]
        v1: DT = reduce_sum v0
      }
      outer {
        v2: DT = constant M
        v3: DT = div v1, v2
      }
      inner {
        v4: DT = load x[M*i + j]
        v5: DT = sub v4, v3
        v6: DT = mul v5, v5
        v7: DT = reduce_sum v6
      }
      outer {
        v8: DT = constant 0.25
        v9: DT = mul v7, v8
        v10: DT = constant 1e-05
        v11: DT = add v9, v10
        v12: DT = rsqrt v11
      }
      inner {
        v13: DT = load x[M*i + j]
        v14: DT = sub v13, v3
        v15: DT = mul v14, v12
        v16: DT = load w[j]
        v17: DT = mul v15, v16
        store y[M*i + j], v17
      }
    })";
    for (size_t at = text.find("DT"); at != std::string::npos; at = text.find("DT"))
      text.replace(at, 2, dtype);
    expect_shared(text, kSizes, 4);
  }
}

TEST(Form, ColumnSumsInBlocksOfRows) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    in w: f32[NM]
    out y: f32[M]
    out z: f64[M]
    kept j: M
    reduced i: N
    inner {
      v0: f32 = load x[M*i + j]
      v1: f32 = reduce_sum v0
      v2: f32 = load w[M*i + j]
      v3: f32 = mul v0, v2
      v4: f64 = cast v3
      v5: f64 = reduce_sum v4
      v6: f32 = reduce_max v2
    }
    outer {
      v7: f32 = constant N
      v8: f32 = div v1, v7
      v9: f32 = add v8, v6
      store y[j], v9
      store z[j], v5
    }
  })",
                {{64, 128}, {8, 67}, {13, 131}, {200, 61}, {255, 1030}, {300, 77}, {1000, 40}}, 6);
}

TEST(Form, ColumnWalksThatKeepScratch) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    out y: f32[NM]
    scratch t: f32[N]
    kept j: M
    reduced i: N
    inner {
      v0: f32 = load x[M*i + j]
      v1: f32 = exp v0
      store t[i], v1
      v3: f32 = reduce_sum v1
    }
    inner {
      v4: f32 = load t[i]
      v5: f32 = div v4, v3
      store y[M*i + j], v5
    }
  })",
                {{24, 128}, {13, 67}, {40, 131}, {7, 61}, {100, 35}}, 3);
}

TEST(Form, ScratchRows) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    out y: f32[NM]
    scratch t: f32[M]
    scratch u: f32[M]
    kept i: N
    reduced j: M
    inner {
      v0: f32 = load x[M*i + j]
      v1: f32 = exp v0
      store t[j], v1
      v3: f32 = mul v0, v1
      store u[j], v3
      v5: f32 = reduce_sum v1
    }
    inner {
      v6: f32 = load t[j]
      v7: f32 = load u[j]
      v8: f32 = div v6, v5
      v9: f32 = add v8, v7
      store y[M*i + j], v9
    }
  })",
                kSizes, 4);
}

TEST(Form, ReductionsCutForThreads) {
  expect_shared(R"(kernel k {
    in x: f32[NM]
    out y: f32[N]
    kept i: N
    reduced j: M
    inner {
      v0: f32 = load x[M*i + j]
      v1: f32 = mul v0, v0
      v2: f32 = reduce_sum v1
      v3: f32 = reduce_max v0
    }
    outer {
      v4: f32 = constant M
      v5: f32 = div v2, v4
      v6: f32 = add v5, v3
      store y[i], v6
    }
  })",
                {{3, 64000}, {3, 65536}, {5, 70004}, {2, 100003}, {17, 8000}, {4, 99990}}, 5);
}

TEST(Form, PlacesOfTheLargest) {
  for (const char* place : {"M*i + j", "i + N*j"}) {
    std::string text = R"(kernel k {
      in x: f32[NM]
      out y: i64[N]
      kept i: N
      reduced j: M
      inner {
        v0: f32 = load x[PLACE]
        v1: i64 = index j
        v2: i64 = constant M
        v3: i64 = mul v1, v2
        v4: i64 = reduce_argmax v0, v3
      }
      outer {
        store y[i], v4
      }
    })";
    text.replace(text.find("PLACE"), 5, place);
    expect_shared(text, {{64, 128}, {70, 131}, {33, 257}, {101, 67}, {40, 50}}, 3);
  }
}

TEST(Form, LookupsAndTheirBounds) {
  expect_shared(R"(kernel k {
    in table: f32[NM]
    in rows: i64[N]
    out y: f32[NM]
    kept i: N
    kept j: M
    outer {
      v0: i64 = load rows[i]
      v1: i64 = check_index v0, N
      v2: f32 = load table[j + M*v1]
      store y[M*i + j], v2
    }
  })",
                {{64, 128}, {11, 131}, {33, 257}, {101, 67}}, 2);
  for (InstructionSet set : test::instruction_sets()) {
    const std::string text = R"(kernel k {
      in x: f32[N]
      in at: i64[M]
      out y: f32[M]
      kept i: M
      outer {
        v0: i64 = load at[i]
        v1: i64 = check_index v0, N
        v2: f32 = load x[0 + 1*v1]
        store y[i], v2
      }
    })";
    std::vector<std::shared_ptr<const loops::CompiledKernel>> held;
    for (const Size size : {Size{50, 21}, Size{49, 70}, Size{1000, 33}}) {
      const Kernel kernel = at_size(text, size);
      const auto made = compile(kernel, set, Sizes::Vary);
      EXPECT_EQ(made.generated, held.empty() ? 1 : 0);
      held.push_back(made.kernel);
      KernelMemory memory(kernel, Values::Moderate, 3);
      for (int64_t i = 0; i < size.m; ++i) memory.data<int64_t>(1)[i] = (size.n - 1 + i) % size.n;
      EXPECT_TRUE(made.kernel->launch(memory.pointers(), test::kHostStream));
      for (int64_t i = 0; i < size.m; ++i)
        ASSERT_EQ(memory.data<float>(2)[i], memory.data<float>(0)[(size.n - 1 + i) % size.n]);
      for (int64_t wrong : {size.n, int64_t{-1}}) {
        memory.data<int64_t>(1)[size.m - 1] = wrong;
        EXPECT_FALSE(made.kernel->launch(memory.pointers(), test::kHostStream)) << wrong;
      }
    }
  }
}

TEST(Form, MaskedLoadsReadNothingElse) {
  expect_shared(R"(kernel pad {
    in x: f32[NM]
    out y: f32[NM]
    kept i: NM
    outer {
      v0: i64 = index i
      v1: i64 = constant N
      v2: bool = ge v0, v1
      v3: i64 = constant M
      v4: bool = lt v0, v3
      v5: bool = and v2, v4
      v6: f32 = load x[-2 + i] if v5
      store y[i], v6
    }
  })",
                {{10, 50}, {7, 33}, {64, 128}, {3, 1031}}, 3);
}

TEST(Form, SixteenBitFloats) {
  for (const char* dtype : {"bf16", "f16"}) {
    std::string text = R"(kernel k {
      in x: DT[NM]
      in z: DT[M]
      out y: DT[NM]
      out s: DT[N]
      kept i: N
      reduced j: M
      inner {
        v0: f32 = load x[M*i + j]
        v1: f32 = load z[j]
        v2: f32 = mul v0, v1
        v3: f32 = round_DT v2
        store y[M*i + j], v3
        v5: f32 = reduce_sum v3
      }
      outer {
        v6: f32 = constant M
        v7: f32 = div v5, v6
        store s[i], v7
      }
    })";
    for (size_t at = text.find("DT"); at != std::string::npos; at = text.find("DT"))
      text.replace(at, 2, dtype);
    expect_shared(text, kSizes, 3);
  }
}

TEST(Form, LongSums) {
  for (const char* dtype : {"f32", "f64", "i64"}) {
    std::string text = R"(kernel k {
      in x: DT[NM]
      out y: DT[N]
      kept i: N
      reduced j: M
      inner {
        v0: DT = load x[M*i + j]
        v1: DT = reduce_sum v0
      }
      outer {
        store y[i], v1
      }
    })";
    for (size_t at = text.find("DT"); at != std::string::npos; at = text.find("DT"))
      text.replace(at, 2, dtype);
    expect_shared(text, {{3, 5000}, {2, 8192}, {7, 9001}, {4, 4099}}, 2);
  }
}

TEST(Form, EmptyKernelsDoNothing) {
  const std::string text = R"(kernel k {
    in x: f32[NM]
    out y: f32[NM]
    kept i: N
    kept j: M
    outer {
      v0: f32 = load x[i + N*j]
      store y[M*i + j], v0
    }
  })";
  for (const Size size : {Size{0, 64}, Size{64, 0}, Size{0, 0}}) {
    const Kernel kernel = [&] {
      Kernel whole = at_size(text, {64, 32});
      whole.dims[0].extent = size.n;
      whole.dims[1].extent = size.m;
      return whole;
    }();
    for (InstructionSet set : test::instruction_sets()) {
      const auto made = compile(kernel, set, Sizes::Vary);
      ASSERT_TRUE(made.kernel) << made.reason;
      KernelMemory memory(kernel, Values::Moderate, 3);
      const std::vector<char> before = memory.bytes(1);
      EXPECT_TRUE(made.kernel->launch(memory.pointers(), test::kHostStream));
      EXPECT_EQ(memory.bytes(1), before);
    }
  }
}

// ---- forms and numbers ----

constexpr const char* kScaled = R"(kernel k {
  in x: f32[100000]
  out y: f32[NM]
  kept i: N
  kept j: M
  outer {
    v0: f32 = load x[SN*i + Sj]
    v1: f32 = constant FACTOR
    v2: f32 = OP v0, v1
    store y[M*i + j], v2
  }
})";

std::string key_of(std::string text, Size size,
                   const std::vector<std::pair<std::string, std::string>>& replacements) {
  for (const auto& [from, to] : replacements) text.replace(text.find(from), from.size(), to);
  return form_key(
      form_of(schedule(at_size(text, size), InstructionSet::Avx2, Sizes::Vary)).schedule);
}

TEST(Form, WhatTheCodeIsChosenByStaysInTheForm) {
  const auto key = [](Size size, const char* row, const char* element, const char* factor,
                      const char* op) {
    return key_of(kScaled, size, {{"SN", row}, {"Sj", element}, {"FACTOR", factor}, {"OP", op}});
  };
  const std::string plain = key({40, 50}, "200", "j", "3", "mul");
  EXPECT_EQ(key({40, 60}, "300", "j", "0.1", "mul"), plain);
  EXPECT_NE(key({40, 50}, "200", "2*j", "3", "mul"), plain) << "elements side by side or not";
  EXPECT_NE(key({40, 50}, "0", "j", "3", "mul"), plain) << "the same row again and again";
  EXPECT_NE(key({1, 50}, "0", "j", "3", "mul"), plain) << "one row";
  EXPECT_NE(key({40, 50}, "50", "j", "3", "mul"), plain) << "rows without a gap are one";
  EXPECT_NE(key({40, 50}, "200", "j", "1", "mul"), plain) << "x * 1 is x";
  EXPECT_NE(key({40, 50}, "200", "j", "3", "add"), plain);
  EXPECT_NE(key({40, 50}, "200", "j", "2", "pow"), key({40, 50}, "200", "j", "3", "pow"));
  // A division of each element by a power of two is none.
  EXPECT_EQ(key({40, 50}, "200", "j", "3", "div"), key({40, 50}, "200", "j", "5", "div"));
  EXPECT_NE(key({40, 50}, "200", "j", "4", "div"), key({40, 50}, "200", "j", "5", "div"));
}

TEST(Form, EqualStridesOfADimAreOneNumber) {
  const char* const text = R"(kernel k {
    in x: f32[10000]
    in z: f32[10000]
    out y: f32[NM]
    kept i: N
    kept j: M
    outer {
      v0: f32 = load x[100*i + j]
      v1: f32 = load z[SNi + j]
      v2: f32 = add v0, v1
      store y[M*i + j], v2
    }
  })";
  const std::string equal = key_of(text, {40, 50}, {{"SNi", "100*i"}});
  EXPECT_NE(key_of(text, {40, 50}, {{"SNi", "110*i"}}), equal);
  EXPECT_EQ(key_of(text, {40, 60}, {{"SNi", "100*i"}}), equal);
}

TEST(Form, FormAndNumbersAreTheSchedule) {
  for (const Size& size : kSizes) {
    const Kernel kernel = at_size(R"(kernel k {
      in x: f32[NM]
      in rows: i64[N]
      out y: f32[NM]
      scratch t: f32[M]
      kept i: N
      reduced j: M
      inner {
        v0: i64 = load rows[i]
        v1: i64 = check_index v0, N
        v2: f32 = load x[j + M*v1]
        v3: f32 = constant 0.75
        v4: f32 = mul v2, v3
        v5: i64 = constant M
        v6: i64 = sub v1, v5
        v7: f32 = cast v6
        v8: f32 = add v4, v7
        store t[j], v8
        v10: f32 = reduce_sum v8
      }
      inner {
        v11: f32 = load t[j]
        v12: f32 = sub v11, v10
        store y[M*i + j], v12
      }
    })",
                                  size);
    Schedule whole = schedule(kernel, InstructionSet::Avx2, Sizes::Vary);
    const Form form = form_of(whole);
    EXPECT_NE(form_key(form.schedule), form_key(whole));
    // What memory there is, code does not ask.
    for (loops::Buffer& buffer : whole.kernel.buffers)
      if (buffer.role != loops::BufferRole::Scratch) buffer.elements = 0;
    EXPECT_EQ(form_key(filled_in(form)), form_key(whole));
    EXPECT_EQ(print(filled_in(form).kernel), print(whole.kernel));
  }
}

// ---- who shares what ----

constexpr const char* kSum = R"(kernel k {
  in x: f32[NM]
  out y: f32[NM]
  kept i: NM
  outer {
    v0: f32 = load x[i]
    v1: f32 = exp v0
    store y[i], v1
  }
})";

TEST(Form, AKernelForTheseSizesServesWhereSizesVaryButNotTheOtherWayRound) {
  const Kernel kernel = at_size(kSum, {31, 41}), other = at_size(kSum, {31, 43});
  const auto fixed = compile(kernel, InstructionSet::Baseline, Sizes::Fixed);
  EXPECT_EQ(fixed.generated, 1);
  EXPECT_EQ(compile(kernel, InstructionSet::Baseline, Sizes::Vary).kernel, fixed.kernel);
  const auto vary = compile(other, InstructionSet::Baseline, Sizes::Vary);
  EXPECT_EQ(vary.generated, 1);
  EXPECT_EQ(compile(other, InstructionSet::Baseline, Sizes::Vary).kernel, vary.kernel);
  EXPECT_EQ(compile(other, InstructionSet::Baseline, Sizes::Fixed).generated, 1);
}

TEST(Form, KernelsOfOneGraphThatDifferInSizesAreGeneratedOnce) {
  const Kernel a = at_size(kSum, {101, 41}), b = at_size(kSum, {103, 43});
  const Kernel* const kernels[] = {&a, &b};
  const auto made = make_cpu_compiler(InstructionSet::Baseline)->compile(kernels, Sizes::Vary);
  EXPECT_EQ(made[0].generated, 1);
  EXPECT_EQ(made[1].generated, 0);
  const auto fixed = make_cpu_compiler(InstructionSet::Baseline)->compile(kernels, Sizes::Fixed);
  expect_same_bits(a, *made[0].kernel, *fixed[0].kernel);
  expect_same_bits(b, *made[1].kernel, *fixed[1].kernel);
}

TEST(Form, CodeGoesWithTheLastKernelOfItsForm) {
  const Kernel a = at_size(kSum, {107, 41}), b = at_size(kSum, {109, 43});
  auto first = compile(a, InstructionSet::Baseline, Sizes::Vary);
  auto second = compile(b, InstructionSet::Baseline, Sizes::Vary);
  EXPECT_EQ(second.generated, 0);
  first.kernel.reset();
  EXPECT_EQ(compile(a, InstructionSet::Baseline, Sizes::Vary).generated, 0);
  second.kernel.reset();
  EXPECT_EQ(compile(a, InstructionSet::Baseline, Sizes::Vary).generated, 1);
}

TEST(Form, StoredKernelsBringTheirFormAlong) {
  const Kernel a = at_size(kSum, {113, 41}), b = at_size(kSum, {127, 43});
  auto compiler = make_cpu_compiler(InstructionSet::Baseline);
  const auto fixed = compile(b, InstructionSet::Baseline, Sizes::Fixed);
  auto made = compile(a, InstructionSet::Baseline, Sizes::Vary);
  const std::string stored = made.kernel->save();
  made.kernel.reset();
  const auto loaded = compiler->load(a, stored);
  ASSERT_TRUE(loaded.kernel) << loaded.reason;
  EXPECT_EQ(loaded.kernel->save(), stored);
  expect_same_bits(a, *loaded.kernel, *compile(a, InstructionSet::Baseline, Sizes::Fixed).kernel);
  const Kernel c = at_size(kSum, {131, 43});
  const auto next = compile(c, InstructionSet::Baseline, Sizes::Vary);
  EXPECT_EQ(next.generated, 0) << "the loaded code serves other sizes";
  expect_same_bits(c, *next.kernel, *compile(c, InstructionSet::Baseline, Sizes::Fixed).kernel);
}

TEST(Form, ListingsNameTheNumbers) {
  const auto made =
      compile(at_size(kSum, {137, 41}), InstructionSet::Baseline, Sizes::Vary).kernel->listings();
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].text.find("; numbers: 5617 "), 0u) << made[0].text.substr(0, 80);
}

}  // namespace
}  // namespace tandem
