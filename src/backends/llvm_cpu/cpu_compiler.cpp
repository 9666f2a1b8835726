#include "backends/llvm_cpu/cpu_compiler.h"

#include "backends/llvm_cpu/cpu_target.h"
#include "backends/llvm_cpu/loader.h"
#include "backends/llvm_cpu/object_code.h"
#include "backends/llvm_cpu/parallel.h"
#include "backends/llvm_cpu/schedule.h"
#include "backends/llvm_cpu/split_reduction.h"
#include "base/error.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {
namespace {

using loops::CompiledKernel;
using loops::Kernel;
using loops::KernelCompiler;

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

/// One generated function and how it is called.
struct Stage {
  Schedule schedule;
  std::string symbol;
  std::unique_ptr<LoadedKernel> loaded;
  std::unique_ptr<LoadedKernel> unaligned{};  // of a schedule that streams: for other memory

  bool is_aligned(void* const* buffers) const {
    const auto& all = schedule.kernel.buffers;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].role == loops::BufferRole::Out &&
          reinterpret_cast<uintptr_t>(buffers[i]) % 64 != 0)
        return false;
    return true;
  }

  bool run(void* const* buffers) const {
    const LoadedKernel& code = unaligned && !is_aligned(buffers) ? *unaligned : *loaded;
    std::atomic<int32_t> failed{0};
    const auto part = [&](int64_t begin, int64_t end) {
      static thread_local ThreadScratch scratch;
      char* memory = schedule.scratch_bytes ? scratch.at_least(schedule.scratch_bytes) : nullptr;
      if (code.function()(buffers, begin, end, memory) != 0) failed.store(1);
    };
    // A range that one thread would take anyway is not worth asking the pool.
    if (schedule.units <= schedule.grain) {
      part(0, schedule.units);
    } else {
      in_parallel(schedule.units, schedule.grain, part);
    }
    return failed.load() == 0;
  }
};

class CpuKernel final : public CompiledKernel {
 public:
  /// A kernel in one stage, or in two that share `partial_bytes` of memory for each buffer between
  /// them.
  CpuKernel(std::vector<Stage> stages, std::vector<int64_t> partial_bytes)
      : stages_(std::move(stages)), partial_bytes_(std::move(partial_bytes)) {
    for (int64_t& bytes : partial_bytes_) {
      bytes = (bytes + 63) / 64 * 64;
      between_bytes_ += bytes;
    }
  }

  bool launch(std::span<void* const> buffers, const c10::Stream&) const override {
    // Timed at first, then now and then: enough to know the best, too little to matter.
    const uint32_t number = runs_.fetch_add(1, std::memory_order_relaxed);
    if (number >= 32 && number % 64 != 0) return run_stages(buffers);
    const auto start = std::chrono::steady_clock::now();
    const bool good = run_stages(buffers);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double best = best_seconds_.load(std::memory_order_relaxed);
    while ((best == 0 || seconds < best) &&
           !best_seconds_.compare_exchange_weak(best, seconds, std::memory_order_relaxed)) {
    }
    return good;
  }

  double best_seconds() const override { return best_seconds_.load(std::memory_order_relaxed); }

  std::vector<Listing> listings() const override {
    Listing code{"ll", {}}, assembly{"s", {}};
    for (const Stage& stage : stages_) {
      KernelText text = CodeGenerator(stage.schedule.set).text(stage.schedule, stage.symbol);
      code.text += text.llvm_ir;
      assembly.text += text.assembly;
    }
    return {std::move(code), std::move(assembly)};
  }

 private:
  bool run_stages(std::span<void* const> buffers) const {
    if (stages_.size() == 1) return stages_[0].run(buffers.data());
    static thread_local ThreadScratch between;
    char* memory = between.at_least(between_bytes_);
    std::vector<void*> all(buffers.begin(), buffers.end());
    for (int64_t bytes : partial_bytes_) {
      all.push_back(memory);
      memory += bytes;
    }
    bool good = true;
    for (const Stage& stage : stages_) good = stage.run(all.data()) && good;
    return good;
  }

  std::vector<Stage> stages_;
  std::vector<int64_t> partial_bytes_;
  int64_t between_bytes_ = 0;
  mutable std::atomic<uint32_t> runs_{0};
  mutable std::atomic<double> best_seconds_{0};
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

/// The best of a few copies of 8 MiB, larger than most second-level caches, on libtorch's threads.
double measure_copy() {
  constexpr int64_t kBytes = 8 << 20;
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const auto start = std::chrono::steady_clock::now();
    // In pieces: for large blocks memcpy writes around the caches, which is slower if they are
    // near.
    constexpr int64_t kPiece = 1 << 15;
    in_parallel(kBytes, kPiece, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kPiece)
        std::memcpy(to.data() + at, from.data() + at,
                    static_cast<size_t>(std::min(kPiece, end - at)));
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i == 0 || seconds < best) best = seconds;
  }
  // Read back, or the copies would be nobody's.
  return to[static_cast<size_t>(kBytes / 2)] == 1 ? 2 * static_cast<double>(kBytes) / best : 0;
}

class CpuCompiler final : public KernelCompiler {
 public:
  explicit CpuCompiler(std::optional<InstructionSet> set) : set_(set) {}
  const loops::Target& target() const override { return *cpu_target(); }

  double copy_bytes_per_second() override {
    static const double bandwidth = measure_copy();
    return bandwidth;
  }

  std::vector<Result> compile(std::span<const Kernel* const> kernels) override {
    const InstructionSet set = set_ ? *set_ : chosen_instruction_set();
    std::vector<Result> results(kernels.size());
    std::vector<size_t> missing;
    std::vector<std::string> keys(kernels.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
      keys[i] = base::str(name_of(set), " ", loops::structural_key(*kernels[i]));
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

  static Stage make_stage(CodeGenerator& generator, const Kernel& kernel, InstructionSet set) {
    static std::atomic<uint64_t> number{0};
    Stage stage{schedule(kernel, set), base::str("tandem_kernel_", number++), nullptr};
    stage.loaded = load(generator.object(stage.schedule, stage.symbol));
    if (stage.schedule.streams) {
      Schedule plain = stage.schedule;
      plain.streams = false;
      stage.unaligned = load(generator.object(plain, stage.symbol + "_unaligned"));
    }
    return stage;
  }

  static Result compile_one(CodeGenerator& generator, const Kernel& kernel, InstructionSet set) {
    std::vector<Stage> stages;
    std::vector<int64_t> partial_bytes;
    if (const auto split = split_reduction(merge_dims(kernel))) {
      stages.push_back(make_stage(generator, split->partial, set));
      stages.push_back(make_stage(generator, split->total, set));
      const auto& buffers = split->partial.buffers;
      for (size_t i = kernel.buffers.size(); i < buffers.size(); ++i)
        partial_bytes.push_back(buffers[i].elements * element_bytes(buffers[i].dtype));
    } else {
      stages.push_back(make_stage(generator, kernel, set));
    }
    return {std::make_shared<CpuKernel>(std::move(stages), std::move(partial_bytes))};
  }

  std::optional<InstructionSet> set_;
};

}  // namespace

std::shared_ptr<KernelCompiler> make_cpu_compiler(std::optional<InstructionSet> set) {
  return std::make_shared<CpuCompiler>(set);
}

}  // namespace tandem::backends::llvm_cpu
