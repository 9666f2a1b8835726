/// Kernels as bytes: stored, loaded without LLVM, and refused where they do not fit.
#include "backends/llvm_cpu/code/loader.h"
#include "tandem/error.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tandem {
namespace {

using backends::llvm_cpu::CodeImage;
using backends::llvm_cpu::InstructionSet;
using backends::llvm_cpu::LoadedKernel;
using backends::llvm_cpu::make_cpu_compiler;
using loops::Kernel;

/// Calls a function of libm and has constants of its own.
Kernel kernel_with_calls() {
  return loops::parse_kernel(R"(kernel k {
    in x: f64[100]
    out y: f64[100]
    kept i: 100
    outer {
      v0: f64 = load x[i]
      v1: f64 = tan v0
      v2: f64 = constant 0.25
      v3: f64 = mul v1, v2
      store y[i], v3
    }
  })");
}

std::vector<double> run(const loops::CompiledKernel& kernel) {
  std::vector<double> x(100), y(100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01 * static_cast<double>(i);
  void* const buffers[] = {x.data(), y.data()};
  EXPECT_TRUE(kernel.launch(buffers, test::kHostStream));
  return y;
}

TEST(CodeImage, AStoredKernelRunsAgainAndIsStoredAgainAsItWas) {
  const Kernel kernel = kernel_with_calls();
  const Kernel* const kernels[] = {&kernel};
  auto compiler = make_cpu_compiler();
  auto made = compiler->compile(kernels)[0];
  ASSERT_TRUE(made.kernel) << made.reason;
  const std::vector<double> expected = run(*made.kernel);
  EXPECT_NEAR(expected[50], 0.25 * std::tan(0.5), 1e-12);
  const std::string stored = made.kernel->save();
  made.kernel.reset();  // or it would be found among those that somebody holds
  const auto loaded = compiler->load(kernel, stored);
  ASSERT_TRUE(loaded.kernel) << loaded.reason;
  EXPECT_EQ(run(*loaded.kernel), expected);
  EXPECT_EQ(loaded.kernel->save(), stored);
  EXPECT_EQ(compiler->load(kernel, stored).kernel, loaded.kernel) << "held by somebody";
}

TEST(CodeImage, CodeForABetterProcessorIsNotLoaded) {
  const Kernel kernel = kernel_with_calls();
  const Kernel* const kernels[] = {&kernel};
  if (!backends::llvm_cpu::host_has(InstructionSet::Avx2)) GTEST_SKIP() << "no such processor";
  const std::string stored =
      make_cpu_compiler(InstructionSet::Avx2)->compile(kernels)[0].kernel->save();
  const auto loaded = make_cpu_compiler(InstructionSet::Baseline)->load(kernel, stored);
  EXPECT_FALSE(loaded.kernel);
  EXPECT_EQ(loaded.reason, "stored for avx2");
}

TEST(CodeImage, CallsOnlyWhatKernelsMayCall) {
  CodeImage image{.bytes = std::string(64, '\0'), .entry = 0, .imports = {{8, "system"}}};
  EXPECT_THROW(LoadedKernel{image}, InternalError);
  image.imports = {{60, "memcpy"}};
  EXPECT_THROW(LoadedKernel{image}, InternalError) << "the slot lies behind the end";
  image.imports = {{-8, "memcpy"}};
  EXPECT_THROW(LoadedKernel{image}, InternalError);
  image.imports = {{8, "memcpy"}};
  image.entry = 64;
  EXPECT_THROW(LoadedKernel{image}, InternalError);
  image.entry = 0;
  const LoadedKernel loaded(image);
  EXPECT_EQ(loaded.image().bytes, image.bytes) << "no address is stored";
}

}  // namespace
}  // namespace tandem
