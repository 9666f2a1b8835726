#pragma once

#include "backends/llvm_cpu/cpu_compiler.h"
#include "loops/ir/kernel_compiler.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tandem::test {

/// The buffers of a kernel, filled for a run.
class KernelMemory {
 public:
  enum class Values {
    Anything,    // random numbers of all sizes, zeros, infinities, NaN
    Moderate,    // random numbers between -3 and 3
    WholeSmall,  // small whole numbers: sums of them are exact in any order
  };
  KernelMemory(const loops::Kernel& kernel, Values values, uint64_t seed);

  std::vector<void*> pointers();
  std::vector<char>& bytes(size_t buffer) { return bytes_[buffer]; }
  template <class T>
  T* data(size_t buffer) {
    return reinterpret_cast<T*>(bytes_[buffer].data());
  }

 private:
  std::vector<std::vector<char>> bytes_;
};

/// Where `got` differs from `expected` in what the kernel writes, by more than `units` in the last
/// place of floats; empty if nowhere. Two NaN are equal, and so are two zeros.
std::string difference(const loops::Kernel& kernel, KernelMemory& got, KernelMemory& expected,
                       double units);

/// The calling thread, which does the work of kernels for the CPU.
inline const c10::Stream kHostStream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));

/// The sets of instructions that this machine can run.
std::vector<backends::llvm_cpu::InstructionSet> instruction_sets();

/// Runs the kernel in generated code and in the reference interpreter on equal memory; empty, or
/// what differs.
std::string difference_from_reference(const loops::Kernel& kernel,
                                      backends::llvm_cpu::InstructionSet set,
                                      KernelMemory::Values values, double units, uint64_t seed = 1,
                                      loops::Sizes sizes = loops::Sizes::Fixed);

/// Elements of a buffer as doubles.
double element(const std::vector<char>& bytes, c10::ScalarType dtype, size_t index);

}  // namespace tandem::test
