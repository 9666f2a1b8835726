#include "backends/llvm_cpu/cpu_compiler.h"

#include "backends/llvm_cpu/code/loader.h"
#include "backends/llvm_cpu/code/object_code.h"
#include "backends/llvm_cpu/cpu_target.h"
#include "backends/llvm_cpu/form.h"
#include "backends/llvm_cpu/parallel.h"
#include "backends/llvm_cpu/schedule.h"
#include "backends/llvm_cpu/split_reduction.h"
#include "base/error.h"
#include "base/of_thread.h"
#include "ir/text/attachments.h"
#include "ir/text/records.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {
namespace {

using loops::CompiledKernel;
using loops::Kernel;
using loops::KernelCompiler;
using loops::Sizes;

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

/// Machine code, which all kernels of its form share; one for fixed sizes has no form.
struct Code {
  std::shared_ptr<const LoadedKernel> loaded{};
  std::string form{};
};

/// One generated function and how it is called.
struct Stage {
  int64_t units = 1, grain = 1;  // of the schedule
  int64_t scratch_bytes = 0;
  Code code{};
  Code unaligned{};                 // of a schedule that streams: for other memory
  std::vector<int32_t> streamed{};  // buffers that such a schedule writes
  std::vector<int64_t> numbers{};   // of the form

  bool is_aligned(void* const* buffers) const {
    return std::ranges::all_of(streamed, [&](int32_t buffer) {
      return reinterpret_cast<uintptr_t>(buffers[buffer]) % 64 == 0;
    });
  }

  bool run(void* const* buffers) const {
    const KernelFunction function =
        (unaligned.loaded && !is_aligned(buffers) ? unaligned : code).loaded->function();
    std::atomic<int32_t> failed{0};
    const auto part = [&](int64_t begin, int64_t end) {
      char* memory =
          scratch_bytes ? base::of_thread<ThreadScratch>().at_least(scratch_bytes) : nullptr;
      if (function(buffers, begin, end, memory, numbers.data()) != 0) failed.store(1);
    };
    // A range that one thread would take anyway is not worth asking the pool.
    if (units <= grain) {
      part(0, units);
    } else {
      in_parallel(units, grain, part);
    }
    return failed.load() == 0;
  }
};

const char* const kSymbol = "tandem_kernel";

/// What a kernel is run as: the kernel itself, or the two halves of a reduction. The first half
/// hands its results to the second in memory between them: one piece for each buffer that the whole
/// kernel does not have.
struct Halves {
  std::vector<Kernel> kernels{};
  std::vector<int64_t> partial_bytes{};
};

Halves halves_of(const Kernel& kernel) {
  auto split = split_reduction(merge_dims(kernel));
  if (!split) return {.kernels = {kernel}};
  Halves halves;
  const auto& buffers = split->partial.buffers;
  for (size_t i = kernel.buffers.size(); i < buffers.size(); ++i)
    halves.partial_bytes.push_back(buffers[i].elements * element_bytes(buffers[i].dtype));
  halves.kernels = {std::move(split->partial), std::move(split->total)};
  return halves;
}

// ---- as it is stored ----

struct StoredCode {
  ir::Bytes bytes;
  int64_t entry = 0;
  std::vector<int64_t> slots{};
  std::vector<std::string> functions{};  // one per slot
  ir::Bytes form{};

  static StoredCode of(const Code& code) {
    CodeImage image = code.loaded->image();
    StoredCode stored{.bytes = {std::move(image.bytes)}, .entry = image.entry, .form = {code.form}};
    for (CodeImage::Import& import : image.imports) {
      stored.slots.push_back(import.slot);
      stored.functions.push_back(std::move(import.function));
    }
    return stored;
  }

  std::shared_ptr<const LoadedKernel> load() && {
    TANDEM_CHECK(slots.size() == functions.size(), "lower", "a stored kernel has ", slots.size(),
                 " slots for ", functions.size(), " functions");
    CodeImage image{.bytes = std::move(bytes.data), .entry = entry};
    for (size_t i = 0; i < slots.size(); ++i)
      image.imports.push_back({slots[i], std::move(functions[i])});
    return std::make_shared<const LoadedKernel>(std::move(image));
  }
};

constexpr auto fields(const StoredCode*) {
  using F = StoredCode;
  return std::tuple(ir::Field{"bytes", &F::bytes}, ir::Field{"entry", &F::entry},
                    ir::Field{"slots", &F::slots}, ir::Field{"functions", &F::functions},
                    ir::Field{"form", &F::form});
}

struct StoredStage {
  int64_t units = 1, grain = 1, scratch_bytes = 0;
  StoredCode code{};
  std::optional<StoredCode> unaligned{};
  std::vector<int32_t> streamed{};
  std::vector<int64_t> numbers{};
};

constexpr auto fields(const StoredStage*) {
  using F = StoredStage;
  return std::tuple(ir::Field{"units", &F::units}, ir::Field{"grain", &F::grain},
                    ir::Field{"scratch_bytes", &F::scratch_bytes}, ir::Field{"code", &F::code},
                    ir::Field{"unaligned", &F::unaligned}, ir::Field{"streamed", &F::streamed},
                    ir::Field{"numbers", &F::numbers});
}

struct StoredKernel {
  std::string instruction_set{};
  std::vector<StoredStage> stages{};
  std::vector<int64_t> partial_bytes{};
};

constexpr auto fields(const StoredKernel*) {
  using F = StoredKernel;
  return std::tuple(ir::Field{"instruction_set", &F::instruction_set},
                    ir::Field{"stages", &F::stages}, ir::Field{"partial_bytes", &F::partial_bytes});
}

class CpuKernel final : public CompiledKernel {
 public:
  /// `stages` one per half, which share `partial_bytes` of memory for each buffer between them.
  CpuKernel(const Kernel& kernel, InstructionSet set, std::vector<Stage> stages,
            std::vector<int64_t> partial_bytes)
      : kernel_(kernel),
        set_(set),
        stages_(std::move(stages)),
        partial_bytes_(std::move(partial_bytes)) {
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
    CodeGenerator generator(set_);
    const std::vector<Kernel> halves = halves_of(kernel_).kernels;
    for (size_t i = 0; i < halves.size(); ++i) {
      const bool vary = !stages_[i].code.form.empty();
      Schedule walk = schedule(halves[i], set_, vary ? Sizes::Vary : Sizes::Fixed);
      if (vary) {
        Form form = form_of(std::move(walk));
        code.text += "; numbers:";
        for (int64_t number : form.numbers) code.text += " " + std::to_string(number);
        code.text += "\n";
        walk = std::move(form.schedule);
      }
      KernelText text = generator.text(walk, kSymbol);
      code.text += text.llvm_ir;
      assembly.text += text.assembly;
    }
    return {std::move(code), std::move(assembly)};
  }

  std::string save() const override {
    StoredKernel stored{.instruction_set = std::string(name(set_)),
                        .partial_bytes = partial_bytes_};
    for (const Stage& stage : stages_) {
      StoredStage& row = stored.stages.emplace_back();
      row = {.units = stage.units,
             .grain = stage.grain,
             .scratch_bytes = stage.scratch_bytes,
             .code = StoredCode::of(stage.code),
             .streamed = stage.streamed,
             .numbers = stage.numbers};
      if (stage.unaligned.loaded) row.unaligned = StoredCode::of(stage.unaligned);
    }
    return ir::pack_record(stored);
  }

 private:
  bool run_stages(std::span<void* const> buffers) const {
    if (stages_.size() == 1) return stages_[0].run(buffers.data());
    char* memory = base::of_thread<ThreadScratch, class Between>().at_least(between_bytes_);
    std::vector<void*> all(buffers.begin(), buffers.end());
    for (int64_t bytes : partial_bytes_) {
      all.push_back(memory);
      memory += bytes;
    }
    bool good = true;
    for (const Stage& stage : stages_) good = stage.run(all.data()) && good;
    return good;
  }

  const Kernel kernel_;
  const InstructionSet set_;
  std::vector<Stage> stages_;
  std::vector<int64_t> partial_bytes_;
  int64_t between_bytes_ = 0;
  mutable std::atomic<uint32_t> runs_{0};
  mutable std::atomic<double> best_seconds_{0};
};

/// What somebody holds, by key.
template <class T>
class Shared {
 public:
  std::shared_ptr<const T> find(const std::string& key) {
    const std::lock_guard guard(lock_);
    auto found = held_.find(key);
    return found == held_.end() ? nullptr : found->second.lock();
  }
  /// What is held already, if another thread was first.
  std::shared_ptr<const T> add(const std::string& key, std::shared_ptr<const T> one) {
    const std::lock_guard guard(lock_);
    // Looked through when it has doubled: once in a while for each that is added.
    if (held_.size() >= sweep_at_) {
      std::erase_if(held_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = std::max<size_t>(64, 2 * held_.size());
    }
    std::weak_ptr<const T>& place = held_[key];
    if (auto first = place.lock()) return first;
    place = one;
    return one;
  }

 private:
  std::mutex lock_;
  std::unordered_map<std::string, std::weak_ptr<const T>> held_;
  size_t sweep_at_ = 64;
};

/// Kernels by what they compute, codes by their form.
struct SharedKernels {
  Shared<CompiledKernel> kernels;
  Shared<LoadedKernel> codes;
};

SharedKernels& shared_kernels() {
  static auto* shared = new SharedKernels;
  return *shared;
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
  bool can_compile() const override { return set_ || chosen_instruction_set(); }

  double copy_bytes_per_second() override {
    static const double bandwidth = measure_copy();
    return bandwidth;
  }

  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes sizes) override {
    const InstructionSet set = instruction_set();
    std::vector<Result> results(kernels.size());
    std::vector<Draft> drafts;
    Codes codes;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if ((results[i].kernel = find(set, *kernels[i], sizes))) continue;
      try {
        drafts.push_back(draft(set, *kernels[i], sizes, codes));
        drafts.back().result = i;
      } catch (const std::exception& error) {
        results[i].reason = error.what();
      }
    }
    generate(set, codes);
    for (Draft& draft : drafts)
      results[draft.result] = finished(set, *kernels[draft.result], sizes, draft, codes);
    return results;
  }

  Result load(const Kernel& kernel, std::string_view bytes) override {
    auto stored = ir::unpack_record<StoredKernel>(bytes);
    const auto set = find_instruction_set(stored.instruction_set);
    if (!set || *set > instruction_set())
      return {nullptr, base::str("stored for ", stored.instruction_set)};
    const bool vary = !stored.stages.empty() && !stored.stages[0].code.form.data.empty();
    const Sizes sizes = vary ? Sizes::Vary : Sizes::Fixed;
    if (auto known = find(*set, kernel, sizes)) return {std::move(known)};
    std::vector<Stage> stages;
    for (StoredStage& row : stored.stages) {
      for (int32_t buffer : row.streamed) {
        TANDEM_CHECK(buffer >= 0 && static_cast<size_t>(buffer) <
                                        kernel.buffers.size() + stored.partial_bytes.size(),
                     "lower", "a stored kernel writes buffer ", buffer);
      }
      Stage& stage = stages.emplace_back();
      stage.units = row.units;
      stage.grain = row.grain;
      stage.scratch_bytes = row.scratch_bytes;
      stage.code = loaded(std::move(row.code));
      if (row.unaligned) stage.unaligned = loaded(std::move(*row.unaligned));
      stage.streamed = std::move(row.streamed);
      stage.numbers = std::move(row.numbers);
    }
    TANDEM_CHECK(!stages.empty(), "lower", "a stored kernel has no code");
    auto made = std::make_shared<const CpuKernel>(kernel, *set, std::move(stages),
                                                  std::move(stored.partial_bytes));
    return {shared_kernels().kernels.add(key_of(*set, kernel, sizes), std::move(made))};
  }

 private:
  InstructionSet instruction_set() const {
    const auto set = set_ ? set_ : chosen_instruction_set();
    TANDEM_CHECK(set, "lower", "there are no kernels for this processor");
    return *set;
  }
  static std::string key_of(InstructionSet set, const Kernel& kernel, Sizes sizes) {
    return base::str(llvm_cpu::name(set), sizes == Sizes::Vary ? " vary " : " ",
                     loops::structural_key(kernel));
  }

  /// One that somebody holds. A kernel for these very sizes serves where sizes vary, too.
  static std::shared_ptr<const CompiledKernel> find(InstructionSet set, const Kernel& kernel,
                                                    Sizes sizes) {
    auto& kernels = shared_kernels().kernels;
    auto found = kernels.find(key_of(set, kernel, Sizes::Fixed));
    if (!found && sizes == Sizes::Vary) found = kernels.find(key_of(set, kernel, sizes));
    return found;
  }

  static Code loaded(StoredCode stored) {
    Code code{.form = std::move(stored.form.data)};
    if (!code.form.empty()) code.loaded = shared_kernels().codes.find(code.form);
    if (code.loaded) return code;
    code.loaded = std::move(stored).load();
    if (!code.form.empty()) code.loaded = shared_kernels().codes.add(code.form, code.loaded);
    return code;
  }

  // ---- what a compilation generates ----

  struct NewCode {
    Schedule walk;
    std::string form;
    std::shared_ptr<const LoadedKernel> loaded{};
    std::string problem{};  // why there is none
  };
  struct Codes {
    std::vector<NewCode> list{};
    std::unordered_map<std::string, size_t> by_form{};
  };
  static constexpr size_t kFound = SIZE_MAX;
  /// A kernel whose codes may still be missing: two for each stage, as places in the list.
  struct Draft {
    size_t result = 0;
    std::vector<Stage> stages{};
    std::vector<size_t> codes{};
    std::vector<int64_t> partial_bytes{};
    int generated = 0;
  };

  static Draft draft(InstructionSet set, const Kernel& kernel, Sizes sizes, Codes& codes) {
    Draft draft;
    Halves halves = halves_of(kernel);
    draft.partial_bytes = std::move(halves.partial_bytes);
    for (const Kernel& half : halves.kernels) {
      Schedule walk = schedule(half, set, sizes);
      Stage& stage = draft.stages.emplace_back();
      stage.units = walk.units;
      stage.grain = walk.grain;
      stage.scratch_bytes = walk.scratch_bytes;
      if (sizes == Sizes::Vary) {
        Form form = form_of(std::move(walk));
        stage.numbers = std::move(form.numbers);
        walk = std::move(form.schedule);
      }
      const bool streams = walk.streams;
      if (streams) {
        for (size_t i = 0; i < walk.kernel.buffers.size(); ++i) {
          if (walk.kernel.buffers[i].role == loops::BufferRole::Out)
            stage.streamed.push_back(static_cast<int32_t>(i));
        }
      }
      draft.codes.push_back(want(walk, stage.code, draft, codes));
      walk.streams = false;
      walk.streamed.clear();
      draft.codes.push_back(streams ? want(walk, stage.unaligned, draft, codes) : kFound);
    }
    return draft;
  }

  /// Finds the code, or puts it on the list of those to be generated.
  static size_t want(const Schedule& walk, Code& code, Draft& draft, Codes& codes) {
    if (walk.is_form) {
      code.form = form_key(walk);
      if ((code.loaded = shared_kernels().codes.find(code.form))) return kFound;
      const auto [it, is_new] = codes.by_form.try_emplace(code.form, codes.list.size());
      if (!is_new) return it->second;
    }
    ++draft.generated;
    codes.list.push_back({walk, code.form});
    return codes.list.size() - 1;
  }

  static void generate(InstructionSet set, Codes& codes) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      std::optional<CodeGenerator> generator;
      for (size_t at = next++; at < codes.list.size(); at = next++) {
        NewCode& code = codes.list[at];
        try {
          if (!generator) generator.emplace(set);
          code.loaded =
              std::make_shared<const LoadedKernel>(link(generator->object(code.walk, kSymbol)));
          if (!code.form.empty())
            code.loaded = shared_kernels().codes.add(code.form, std::move(code.loaded));
        } catch (const std::exception& error) {
          code.problem = error.what();
        }
      }
    };
    const size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> others;
    for (size_t i = 1; i < std::min(cores, codes.list.size()); ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  }

  static Result finished(InstructionSet set, const Kernel& kernel, Sizes sizes, Draft& draft,
                         const Codes& codes) {
    for (size_t i = 0; i < draft.codes.size(); ++i) {
      if (draft.codes[i] == kFound) continue;
      const NewCode& made = codes.list[draft.codes[i]];
      if (!made.loaded) return {nullptr, made.problem};
      Stage& stage = draft.stages[i / 2];
      (i % 2 == 0 ? stage.code : stage.unaligned).loaded = made.loaded;
    }
    auto made = std::make_shared<const CpuKernel>(kernel, set, std::move(draft.stages),
                                                  std::move(draft.partial_bytes));
    return {.kernel = shared_kernels().kernels.add(key_of(set, kernel, sizes), std::move(made)),
            .generated = draft.generated};
  }

  std::optional<InstructionSet> set_;
};

}  // namespace

std::shared_ptr<KernelCompiler> make_cpu_compiler(std::optional<InstructionSet> set) {
  return std::make_shared<CpuCompiler>(set);
}

}  // namespace tandem::backends::llvm_cpu
