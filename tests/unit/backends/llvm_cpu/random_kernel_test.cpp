#include "base/error.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

// Random loop nests against the reference interpreter. Values are small whole numbers and the ops
// keep them so: results are exact whatever the order of a sum, and any difference is a mistake.
namespace tandem {
namespace {

using c10::ScalarType;
using loops::Access;
using loops::BufferRole;
using loops::Instruction;
using loops::Kernel;
using loops::LoopOp;
using loops::Sizes;
using test::KernelMemory;

class Generator {
 public:
  /// Kernels of one seed differ in the extents of their dims only.
  Generator(uint64_t seed, uint64_t sizes) : random_(seed), sizes_(sizes) {}

  Kernel kernel() {
    const int kept = static_cast<int>(pick(4)), reduced = static_cast<int>(pick(3));
    for (int i = 0; i < kept + reduced; ++i) {
      static constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33, 53, 101};
      kernel_.dims.push_back({std::string(1, static_cast<char>('a' + i)),
                              kExtents[sizes_() % (kept + reduced > 3 ? 8 : std::size(kExtents))]});
    }
    kernel_.name = "k";
    kernel_.kept = kept;
    const int phases = reduced ? 1 + static_cast<int>(pick(3)) : 1;
    for (int i = 0; i < phases; ++i) {
      if (pick(2) || !reduced) phase(false);
      if (reduced) phase(true);
    }
    phase(false, true);
    return kernel_;
  }

 private:
  uint64_t pick(uint64_t count) { return count ? random_() % count : 0; }

  /// A view of all dims (or of the kept ones): a random order of them, some of them broadcast.
  Access access(bool inner, BufferRole role, ScalarType dtype) {
    const size_t dims = inner ? kernel_.dims.size() : static_cast<size_t>(kernel_.kept);
    std::vector<size_t> order(dims);
    std::iota(order.begin(), order.end(), 0);
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    Access result{.strides = std::vector<int64_t>(kernel_.dims.size(), 0)};
    int64_t elements = 1;
    for (size_t i = order.size(); i-- > 0;) {
      if (role == BufferRole::In && pick(5) == 0) continue;
      result.strides[order[i]] = elements;
      elements *= kernel_.dims[order[i]].extent;
    }
    if (role == BufferRole::In) {
      result.offset = static_cast<int64_t>(pick(3));
      elements += result.offset;
    }
    result.buffer = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back(
        {base::str(role == BufferRole::In ? "x" : "y", result.buffer), role, dtype, elements});
    return result;
  }

  int32_t add(Instruction line, bool inner) {
    kernel_.body.push_back(line);
    const auto at = static_cast<int32_t>(kernel_.body.size()) - 1;
    if (line.op != LoopOp::Store && line.op < LoopOp::ReduceSum)
      (inner ? local_ : global_).push_back(at);
    return at;
  }

  int32_t load(bool inner) {
    static constexpr ScalarType kTypes[] = {
        ScalarType::Float,    ScalarType::Float, ScalarType::Int,    ScalarType::Long,
        ScalarType::BFloat16, ScalarType::Half,  ScalarType::Double, ScalarType::Char};
    const ScalarType stored = kTypes[pick(std::size(kTypes))];
    kernel_.accesses.push_back(access(inner, BufferRole::In, stored));
    const ScalarType dtype = loops::compute_dtype(stored);
    Instruction line{.op = LoopOp::Load,
                     .dtype = dtype,
                     .slot = static_cast<int32_t>(kernel_.accesses.size()) - 1};
    const int32_t at = add(line, inner);
    if (dtype == ScalarType::Float) return at;
    return add({.op = LoopOp::Cast, .dtype = ScalarType::Float, .a = at}, inner);
  }

  /// A visible float.
  int32_t value(bool inner) {
    std::vector<int32_t> choices;
    for (const std::vector<int32_t>* list : {&global_, &local_})
      for (int32_t at : *list)
        if (kernel_.body[static_cast<size_t>(at)].dtype == ScalarType::Float) choices.push_back(at);
    if (choices.empty() || pick(4) == 0) return load(inner);
    return choices[pick(choices.size())];
  }

  void line(bool inner) {
    const int32_t a = value(inner), b = value(inner);
    constexpr auto kFloat = ScalarType::Float;
    switch (pick(7)) {
      case 0:
        // Kept small, so that all sums stay exact.
        add({.op = LoopOp::Min,
             .dtype = kFloat,
             .a = add({.op = LoopOp::Add, .dtype = kFloat, .a = a, .b = b}, inner),
             .b = add({.op = LoopOp::Constant, .dtype = kFloat, .number = 5}, inner)},
            inner);
        return;
      case 1:
        add({.op = LoopOp::Max, .dtype = kFloat, .a = a, .b = b}, inner);
        return;
      case 2:
        add({.op = LoopOp::Neg, .dtype = kFloat, .a = a}, inner);
        return;
      case 3: {
        const int32_t mask =
            add({.op = LoopOp::Lt, .dtype = ScalarType::Bool, .a = a, .b = b}, inner);
        add({.op = LoopOp::Select, .dtype = kFloat, .a = mask, .b = b, .c = value(inner)}, inner);
        return;
      }
      case 4: {
        const size_t dims = inner ? kernel_.dims.size() : static_cast<size_t>(kernel_.kept);
        if (dims == 0) return;
        const int32_t index = add({.op = LoopOp::Index,
                                   .dtype = ScalarType::Long,
                                   .slot = static_cast<int32_t>(pick(dims))},
                                  inner);
        add({.op = LoopOp::Cast, .dtype = kFloat, .a = index}, inner);
        return;
      }
      case 5:
        add({.op = LoopOp::Min, .dtype = kFloat, .a = a, .b = b}, inner);
        return;
      default: {
        // Read only where a comparison says so.
        const int32_t mask =
            add({.op = LoopOp::Ge, .dtype = ScalarType::Bool, .a = a, .b = b}, inner);
        kernel_.accesses.push_back(access(inner, BufferRole::In, kFloat));
        add({.op = LoopOp::Load,
             .dtype = kFloat,
             .b = mask,
             .slot = static_cast<int32_t>(kernel_.accesses.size()) - 1},
            inner);
        return;
      }
    }
  }

  void store(bool inner) {
    static constexpr ScalarType kTypes[] = {ScalarType::Float, ScalarType::Float,
                                            ScalarType::BFloat16, ScalarType::Long,
                                            ScalarType::Bool};
    const ScalarType stored = kTypes[pick(std::size(kTypes))];
    int32_t from = value(inner);
    const ScalarType dtype = loops::compute_dtype(stored);
    if (dtype != ScalarType::Float)
      from = add({.op = LoopOp::Cast, .dtype = dtype, .a = from}, inner);
    kernel_.accesses.push_back(access(inner, BufferRole::Out, stored));
    add({.op = LoopOp::Store,
         .dtype = dtype,
         .a = from,
         .slot = static_cast<int32_t>(kernel_.accesses.size()) - 1},
        inner);
  }

  void phase(bool inner, bool last = false) {
    const auto begin = static_cast<int32_t>(kernel_.body.size());
    local_.clear();
    const uint64_t lines = pick(5);
    for (uint64_t i = 0; i < lines; ++i) line(inner);
    std::vector<int32_t> reductions;
    for (uint64_t i = 0; inner && i < 1 + pick(2); ++i) {
      static constexpr LoopOp kOps[] = {LoopOp::ReduceSum, LoopOp::ReduceMax, LoopOp::ReduceMin};
      reductions.push_back(
          add({.op = kOps[pick(3)], .dtype = ScalarType::Float, .a = value(true)}, true));
    }
    if (last || pick(2)) store(inner);
    kernel_.phases.push_back({inner, begin, static_cast<int32_t>(kernel_.body.size())});
    global_.insert(global_.end(), reductions.begin(), reductions.end());
  }

  std::mt19937_64 random_, sizes_;
  Kernel kernel_;
  std::vector<int32_t> global_, local_;  // values visible to the end; in this phase
};

TEST(CpuKernel, RandomNestsAreAsTheReferenceSays) {
  constexpr uint64_t kCount = 60;
  for (auto set : test::instruction_sets()) {
    for (uint64_t seed = 1; seed <= kCount; ++seed) {
      const Kernel kernel = Generator(seed * 7919 + static_cast<uint64_t>(set), seed).kernel();
      loops::verify(kernel);
      const std::string problem =
          test::difference_from_reference(kernel, set, KernelMemory::Values::WholeSmall, 0, seed);
      ASSERT_EQ(problem, "") << name(set) << ", seed " << seed << "\n" << print(kernel);
    }
  }
}

TEST(CpuKernel, RandomNestsShareTheirCodeAmongSizes) {
  constexpr uint64_t kCount = 40, kSizes = 8;
  for (auto set : test::instruction_sets()) {
    int codes = 0;
    for (uint64_t seed = 1; seed <= kCount; ++seed) {
      std::vector<Kernel> kernels;
      for (uint64_t sizes = 0; sizes < kSizes; ++sizes)
        kernels.push_back(
            Generator(seed * 6007 + static_cast<uint64_t>(set), 31 * seed + sizes).kernel());
      std::vector<std::shared_ptr<const loops::CompiledKernel>> held;
      for (const Kernel& kernel : kernels) {
        const Kernel* const one[] = {&kernel};
        const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(one, Sizes::Vary);
        ASSERT_TRUE(made[0].kernel) << made[0].reason;
        held.push_back(made[0].kernel);
        codes += made[0].generated;
        const std::string problem = test::difference_from_reference(
            kernel, set, KernelMemory::Values::WholeSmall, 0, seed, Sizes::Vary);
        ASSERT_EQ(problem, "") << name(set) << ", seed " << seed << "\n" << print(kernel);
      }
    }
    EXPECT_LT(codes, static_cast<int>(kCount * kSizes)) << name(set);
  }
}

}  // namespace
}  // namespace tandem
