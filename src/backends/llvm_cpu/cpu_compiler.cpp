#include "backends/llvm_cpu/cpu_compiler.h"

#include "backends/llvm_cpu/loader.h"
#include "backends/llvm_cpu/object_code.h"
#include "backends/llvm_cpu/schedule.h"
#include "base/error.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {
namespace {

using llvm_common::CompiledKernel;
using llvm_common::Kernel;
using llvm_common::KernelCompiler;

/// Memory of one thread for the rows that kernels keep to themselves; grows, and is kept.
class ThreadScratch {
 public:
  ~ThreadScratch() { std::free(memory_); }
  char* at_least(int64_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = (bytes + 4095) / 4096 * 4096;
      memory_ = static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(size_)));
      if (!memory_) {
        size_ = 0;
        throw std::bad_alloc();
      }
    }
    return memory_;
  }

 private:
  char* memory_ = nullptr;
  int64_t size_ = 0;
};

class CpuKernel final : public CompiledKernel {
 public:
  CpuKernel(Schedule schedule, const ObjectCode& object)
      : schedule_(std::move(schedule)), symbol_(object.symbol), loaded_(load(object)) {}

  bool run(std::span<void* const> buffers) const override {
    std::atomic<int32_t> failed{0};
    const auto part = [&](int64_t begin, int64_t end) {
      static thread_local ThreadScratch scratch;
      char* memory = schedule_.scratch_bytes ? scratch.at_least(schedule_.scratch_bytes) : nullptr;
      if (loaded_->function()(buffers.data(), begin, end, memory) != 0) failed.store(1);
    };
    // A range that one thread would take anyway is not worth asking the pool.
    if (schedule_.units <= schedule_.grain) {
      part(0, schedule_.units);
    } else {
      at::parallel_for(0, schedule_.units, schedule_.grain, part);
    }
    return failed.load() == 0;
  }

  std::vector<Listing> listings() const override {
    KernelText text = CodeGenerator(schedule_.set).text(schedule_, symbol_);
    return {{"ll", std::move(text.llvm_ir)}, {"s", std::move(text.assembly)}};
  }

 private:
  Schedule schedule_;
  std::string symbol_;
  std::unique_ptr<LoadedKernel> loaded_;
};

/// Kernels that somebody holds, by structure and instruction set.
class SharedKernels {
 public:
  std::shared_ptr<const CompiledKernel> find(const std::string& key) {
    const std::lock_guard guard(lock_);
    auto found = kernels_.find(key);
    return found == kernels_.end() ? nullptr : found->second.lock();
  }
  void add(const std::string& key, const std::shared_ptr<const CompiledKernel>& kernel) {
    const std::lock_guard guard(lock_);
    std::erase_if(kernels_, [](const auto& entry) { return entry.second.expired(); });
    kernels_[key] = kernel;
  }

 private:
  std::mutex lock_;
  std::map<std::string, std::weak_ptr<const CompiledKernel>> kernels_;
};

SharedKernels& shared_kernels() {
  static auto* kernels = new SharedKernels;
  return *kernels;
}

class CpuCompiler final : public KernelCompiler {
 public:
  explicit CpuCompiler(std::optional<InstructionSet> set) : set_(set) {}
  std::string_view name() const override { return "cpu"; }

  std::vector<Result> compile(std::span<const Kernel* const> kernels) override {
    const InstructionSet set = set_ ? *set_ : chosen_instruction_set();
    std::vector<Result> results(kernels.size());
    std::vector<size_t> missing;
    std::vector<std::string> keys(kernels.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
      keys[i] = base::str(name_of(set), " ", llvm_common::structural_key(*kernels[i]));
      results[i].kernel = shared_kernels().find(keys[i]);
      if (!results[i].kernel) missing.push_back(i);
    }
    std::atomic<size_t> next{0};
    const auto work = [&] {
      std::optional<CodeGenerator> generator;
      for (size_t at = next++; at < missing.size(); at = next++) {
        const size_t i = missing[at];
        try {
          if (!generator) generator.emplace(set);
          results[i] = compile_one(*generator, *kernels[i], set);
        } catch (const std::exception& error) {
          results[i] = {nullptr, error.what()};
        }
      }
    };
    const size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> others;
    for (size_t i = 1; i < std::min(cores, missing.size()); ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    for (size_t i : missing)
      if (results[i].kernel) shared_kernels().add(keys[i], results[i].kernel);
    return results;
  }

 private:
  static std::string_view name_of(InstructionSet set) { return llvm_cpu::name(set); }

  static Result compile_one(CodeGenerator& generator, const Kernel& kernel, InstructionSet set) {
    static std::atomic<uint64_t> number{0};
    Schedule plan = schedule(kernel, set);
    const std::string symbol = base::str("tandem_kernel_", number++);
    const ObjectCode object = generator.object(plan, symbol);
    return {std::make_shared<CpuKernel>(std::move(plan), object)};
  }

  std::optional<InstructionSet> set_;
};

}  // namespace

std::shared_ptr<KernelCompiler> make_cpu_compiler(std::optional<InstructionSet> set) {
  return std::make_shared<CpuCompiler>(set);
}

}  // namespace tandem::backends::llvm_cpu
