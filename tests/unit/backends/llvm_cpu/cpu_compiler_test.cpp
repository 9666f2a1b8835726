#include "backends/llvm_cpu/schedule.h"
#include "base/error.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tandem {
namespace {

using backends::llvm_cpu::InstructionSet;
using backends::llvm_cpu::make_cpu_compiler;
using loops::Kernel;
using loops::parse_kernel;

/// y = x + number
Kernel add_number(int number) {
  return parse_kernel(base::str(R"(kernel k {
    in x: f32[100]
    out y: f32[100]
    kept i: 100
    outer {
      v0: f32 = load x[i]
      v1: f32 = constant )",
                                number, R"(
      v2: f32 = add v0, v1
      store y[i], v2
    }
  })"));
}

bool adds(const loops::CompiledKernel& kernel, int number) {
  std::vector<float> x(100, 1), y(100);
  void* const buffers[] = {x.data(), y.data()};
  return kernel.launch(buffers, test::kHostStream) &&
         y == std::vector<float>(100, 1 + static_cast<float>(number));
}

/// Of the memory that no file stands behind, how much may be executed.
int64_t generated_code_bytes() {
  std::ifstream maps("/proc/self/maps");
  int64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    uint64_t begin = 0, end = 0;
    char dash = 0;
    std::string rights, offset, device, file_number, path;
    fields >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> file_number >> path;
    if (rights.find('x') != std::string::npos && path.empty())
      bytes += static_cast<int64_t>(end - begin);
  }
  return bytes;
}

TEST(CpuCompiler, EqualKernelsAreCompiledOnceWhileSomebodyHoldsThem) {
  const Kernel kernel = add_number(41);
  const Kernel* const kernels[] = {&kernel};
  auto compiler = make_cpu_compiler();
  auto first = compiler->compile(kernels)[0].kernel;
  EXPECT_EQ(compiler->compile(kernels)[0].kernel, first);
  EXPECT_EQ(make_cpu_compiler()->compile(kernels)[0].kernel, first);
  const std::weak_ptr<const loops::CompiledKernel> gone = first;
  first.reset();
  EXPECT_TRUE(gone.expired());
}

TEST(CpuCompiler, CodeGoesWithItsOwner) {
  auto cycle = [](int number) {
    const Kernel kernel = add_number(number);
    const Kernel* const kernels[] = {&kernel};
    const auto made = make_cpu_compiler(InstructionSet::Baseline)->compile(kernels);
    ASSERT_TRUE(adds(*made[0].kernel, number));
  };
  cycle(0);
  const Kernel kept = add_number(-1);
  const Kernel* const kernels[] = {&kept};
  const int64_t before = generated_code_bytes();
  const auto holds = make_cpu_compiler(InstructionSet::Baseline)->compile(kernels);
  EXPECT_GT(generated_code_bytes(), before) << "what is held must be seen";
  const int64_t with_one = generated_code_bytes();
  for (int i = 1; i < 100; ++i) cycle(i);
  EXPECT_EQ(generated_code_bytes(), with_one);
}

TEST(CpuCompiler, ManyKernelsAtOnceFromSeveralThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Kernel> kernels;
      for (int i = 0; i < 10; ++i) kernels.push_back(add_number(2000 + 7 * i + t));
      std::vector<const Kernel*> pointers;
      for (const Kernel& kernel : kernels) pointers.push_back(&kernel);
      const auto made = make_cpu_compiler()->compile(pointers);
      for (int i = 0; i < 10; ++i)
        good += adds(*made[static_cast<size_t>(i)].kernel, 2000 + 7 * i + t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 30);
}

TEST(CpuCompiler, AChildAfterForkRunsItsParentsKernelsAndCompilesItsOwn) {
  const Kernel kernel = add_number(3), other = add_number(4);
  const Kernel* const kernels[] = {&kernel};
  const Kernel* const others[] = {&other};
  auto made = make_cpu_compiler()->compile(kernels);
  const pid_t child = fork();
  if (child == 0) {
    const bool old_works = adds(*made[0].kernel, 3);
    auto mine = make_cpu_compiler(InstructionSet::Baseline)->compile(others);
    const bool new_works = mine[0].kernel && adds(*mine[0].kernel, 4);
    made.clear();
    mine.clear();
    _exit(old_works && new_works ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(adds(*made[0].kernel, 3));
}

TEST(CpuCompiler, KnowsItsBestTimeAndTheSpeedOfACopy) {
  const Kernel kernel = add_number(7);
  const Kernel* const kernels[] = {&kernel};
  auto compiler = make_cpu_compiler();
  const auto made = compiler->compile(kernels)[0].kernel;
  EXPECT_EQ(made->best_seconds(), 0);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(adds(*made, 7));
  EXPECT_GT(made->best_seconds(), 0);
  EXPECT_LT(made->best_seconds(), 1);
  EXPECT_GT(compiler->copy_bytes_per_second(), 1e8);
}

// The set-up installs LLVM's tools, and with them its shared library.
TEST(CpuCompiler, AnotherLlvmInTheProcessDoesNoHarm) {
  void* other = dlopen("libLLVM.so.19.1", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_TRUE(other) << dlerror();
  auto* create = reinterpret_cast<void* (*)()>(dlsym(other, "LLVMContextCreate"));
  auto* dispose = reinterpret_cast<void (*)(void*)>(dlsym(other, "LLVMContextDispose"));
  auto* module = reinterpret_cast<void* (*)(const char*, void*)>(
      dlsym(other, "LLVMModuleCreateWithNameInContext"));
  ASSERT_TRUE(create && dispose && module);
  void* context = create();
  EXPECT_TRUE(module("theirs", context));
  const Kernel kernel = add_number(6);
  const Kernel* const kernels[] = {&kernel};
  const auto made = make_cpu_compiler()->compile(kernels);
  ASSERT_TRUE(made[0].kernel) << made[0].reason;
  EXPECT_TRUE(adds(*made[0].kernel, 6));
  dispose(context);
}

TEST(CpuCompiler, ListingsShowIntermediateCodeAndAssembly) {
  const Kernel kernel = add_number(5);
  const Kernel* const kernels[] = {&kernel};
  const auto listings = make_cpu_compiler()->compile(kernels)[0].kernel->listings();
  ASSERT_EQ(listings.size(), 2u);
  EXPECT_EQ(listings[0].ending, "ll");
  EXPECT_NE(listings[0].text.find("fadd <"), std::string::npos);
  EXPECT_EQ(listings[1].ending, "s");
  EXPECT_NE(listings[1].text.find("addps"), std::string::npos);
}

/// TANDEM_CPU for the length of a test.
class WithCpu {
 public:
  explicit WithCpu(const char* value) { setenv("TANDEM_CPU", value, 1); }
  ~WithCpu() { unsetenv("TANDEM_CPU"); }
};

TEST(InstructionSet, TheVariableChoosesAndAWrongNameSaysWhichAreKnown) {
  {
    const WithCpu cpu("baseline");
    EXPECT_EQ(backends::llvm_cpu::chosen_instruction_set(), InstructionSet::Baseline);
  }
  {
    const WithCpu cpu("none");
    EXPECT_FALSE(backends::llvm_cpu::chosen_instruction_set());
    EXPECT_FALSE(make_cpu_compiler()->can_compile());
  }
  EXPECT_TRUE(make_cpu_compiler()->can_compile());
  const WithCpu cpu("sse9");
  try {
    backends::llvm_cpu::chosen_instruction_set();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "lower: TANDEM_CPU is \"sse9\"\n"
                 "  known:  avx512, avx2, baseline, none\n"
                 "  remedy: unset it, or give one of these");
  }
}

TEST(Schedule, NeighbouringDimsMergeWhereAllAccessesAllowIt) {
  const Kernel kernel = parse_kernel(R"(kernel k {
    in x: f32[120]
    in b: f32[4]
    out y: f32[120]
    kept i: 4
    kept j: 5
    kept k: 6
    outer {
      v0: f32 = load x[30*i + 6*j + k]
      v1: f32 = load b[i]
      v2: f32 = add v0, v1
      store y[30*i + 6*j + k], v2
    }
  })");
  const Kernel merged = backends::llvm_cpu::merge_dims(kernel);
  ASSERT_EQ(merged.dims.size(), 2u);
  EXPECT_EQ(merged.dims[0].extent, 4);
  EXPECT_EQ(merged.dims[1].extent, 30);
}

TEST(Schedule, VectorsRunAlongTheContiguousDim) {
  const auto text = [](const char* place) {
    return base::str(R"(kernel k {
      in x: f32[10000]
      out y: f32[100]
      kept i: 100
      reduced j: 100
      inner {
        v0: f32 = load x[)",
                     place, R"(]
        v1: f32 = reduce_sum v0
      }
      outer {
        store y[i], v1
      }
    })");
  };
  EXPECT_FALSE(schedule(parse_kernel(text("100*i + j")), InstructionSet::Avx2).vector_is_kept);
  EXPECT_TRUE(schedule(parse_kernel(text("i + 100*j")), InstructionSet::Avx2).vector_is_kept);
}

}  // namespace
}  // namespace tandem
