#include "backends/llvm_cpu/cpu_compiler.h"
#include "backends/llvm_cpu/schedule.h"
#include "base/error.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

// Results beyond the caches are written around them; only whole vectors at multiples of 64 bytes
// can be.
namespace tandem {
namespace {

using loops::Kernel;
using loops::parse_kernel;

Kernel doubled(int64_t rows, int64_t columns) {
  const std::string n = std::to_string(rows * columns), c = std::to_string(columns);
  return parse_kernel(
      base::str("kernel k {\n in x: f32[", n, "]\n out y: f32[", n, "]\n kept i: ", rows,
                "\n kept j: ", c, "\n outer {\n v0: f32 = load x[", c,
                "*i + j]\n v1: f32 = add v0, v0\n store y[", c, "*i + j], v1\n }\n}"));
}

struct Freed {
  void operator()(float* memory) const { std::free(memory); }
};

TEST(Streams, LargeResultsInAlignedAndOtherMemory) {
  for (int64_t columns : {4096, 4099}) {
    const int64_t rows = 1500, count = rows * columns;
    const Kernel kernel = doubled(rows, columns);
    const Kernel* const kernels[] = {&kernel};
    EXPECT_TRUE(
        backends::llvm_cpu::schedule(kernel, backends::llvm_cpu::InstructionSet::Avx512).streams);
    const auto allocate = [&] {
      return std::unique_ptr<float, Freed>(static_cast<float*>(
          std::aligned_alloc(64, static_cast<size_t>(count + 64) / 16 * 64 + 64)));
    };
    const auto x = allocate(), y = allocate();
    for (int64_t i = 0; i < count; ++i) x.get()[i] = static_cast<float>(i % 1000);
    const auto expect_doubled = [&](backends::llvm_cpu::InstructionSet set, loops::Sizes sizes) {
      const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(kernels, sizes);
      ASSERT_TRUE(made[0].kernel) << made[0].reason;
      for (int64_t shift : {0, 1}) {
        float* const out = y.get() + shift;
        for (int64_t i = 0; i < count; ++i) out[i] = -1;
        void* const buffers[] = {x.get(), out};
        made[0].kernel->launch(buffers, test::kHostStream);
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) wrong += out[i] != 2 * static_cast<float>(i % 1000);
        EXPECT_EQ(wrong, 0) << name(set) << ", " << columns << " columns, shifted by " << shift;
      }
    };
    for (auto set : test::instruction_sets()) {
      for (auto sizes : {loops::Sizes::Vary, loops::Sizes::Fixed}) expect_doubled(set, sizes);
    }
  }
}

// Rows without a gap are one, so both are asked for rows that have one.
TEST(Streams, FormsKnowWhichResultsLieAtMultiplesOfAVector) {
  using backends::llvm_cpu::InstructionSet;
  const auto places = [](int64_t rows, int64_t columns, int64_t pitch) {
    const std::string n = std::to_string(rows * pitch);
    return backends::llvm_cpu::schedule(
        parse_kernel(base::str("kernel k {\n in x: f32[", rows, "]\n out y: f32[", n,
                               "]\n kept i: ", rows, "\n kept j: ", columns,
                               "\n outer {\n v0: f32 = load x[i]\n store y[", pitch,
                               "*i + j], v0\n }\n}")),
        InstructionSet::Avx512, loops::Sizes::Vary);
  };
  EXPECT_TRUE(places(4000, 4000, 4096).streams);
  EXPECT_TRUE(places(5000, 4000, 4096).streamed[1]);
  EXPECT_FALSE(places(4000, 4000, 4099).streams);
  EXPECT_FALSE(places(400, 4000, 4096).streams);
}

TEST(Streams, SmallResultsStayInTheCaches) {
  EXPECT_FALSE(
      backends::llvm_cpu::schedule(doubled(100, 4096), backends::llvm_cpu::InstructionSet::Avx512)
          .streams);
}

}  // namespace
}  // namespace tandem
