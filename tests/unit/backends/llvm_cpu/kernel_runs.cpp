#include "unit/backends/llvm_cpu/kernel_runs.h"

#include "base/error.h"
#include "loops/ir/scalar_math.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>

namespace tandem::test {

using backends::llvm_cpu::InstructionSet;
using c10::ScalarType;
using loops::Buffer;
using loops::BufferRole;
using loops::Kernel;
using loops::Scalar;

namespace {

double random_number(KernelMemory::Values values, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-3, 3);
  if (values == KernelMemory::Values::Moderate) return uniform(random);
  if (values == KernelMemory::Values::WholeSmall) return static_cast<double>(random() % 9) - 4;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {0.0, -0.0,  kInfinity, -kInfinity, 1,     -1,
                                 0.5, 1e-40, 1e-45,     1e30,       -88.5, 88.5};
  const uint64_t choice = random() % 16;
  if (choice < 2) return kSpecial[random() % std::size(kSpecial)];
  if (choice == 2) return std::numeric_limits<double>::quiet_NaN();
  if (choice < 6) return uniform(random) * std::exp2(static_cast<double>(random() % 40) - 20);
  return uniform(random);
}

/// The distance to the next value of the dtype, at the size of `value`.
double unit_of(double value, ScalarType dtype) {
  const double size = std::abs(value);
  switch (dtype) {
    case ScalarType::Float: {
      const auto x = static_cast<float>(size);
      return static_cast<double>(std::nextafter(x, std::numeric_limits<float>::infinity())) -
             static_cast<double>(x);
    }
    case ScalarType::Double:
      return std::nextafter(size, std::numeric_limits<double>::infinity()) - size;
    case ScalarType::BFloat16:
      return std::max(std::exp2(std::floor(std::log2(size)) - 7), 1e-40);
    case ScalarType::Half:
      return std::max(std::exp2(std::floor(std::log2(size)) - 10), std::exp2(-24));
    default:
      return 0;
  }
}

}  // namespace

double element(const std::vector<char>& bytes, ScalarType dtype, size_t index) {
  const Scalar value = loops::read_element(bytes.data(), static_cast<int64_t>(index), dtype);
  return c10::isFloatingType(dtype) ? value.number : static_cast<double>(value.integer);
}

KernelMemory::KernelMemory(const Kernel& kernel, Values values, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const Buffer& buffer : kernel.buffers) {
    const auto count = static_cast<size_t>(buffer.elements);
    std::vector<char> bytes(count * c10::elementSize(buffer.dtype));
    if (buffer.role == BufferRole::Scratch) bytes.clear();
    for (size_t i = 0; buffer.role == BufferRole::In && i < count; ++i) {
      Scalar value;
      if (c10::isFloatingType(buffer.dtype)) {
        value.number = random_number(values, random);
      } else if (buffer.dtype == ScalarType::Bool) {
        value.integer = static_cast<int64_t>(random() % 2);
      } else {
        value.integer =
            static_cast<int64_t>(random() % 16) - (buffer.dtype == ScalarType::Byte ? 0 : 8);
        if (values == Values::Anything && random() % 8 == 0)
          value.integer = static_cast<int64_t>(random());
      }
      loops::write_element(bytes.data(), static_cast<int64_t>(i), buffer.dtype, value);
    }
    bytes_.push_back(std::move(bytes));
  }
}

std::vector<void*> KernelMemory::pointers() {
  std::vector<void*> result;
  for (std::vector<char>& bytes : bytes_) result.push_back(bytes.empty() ? nullptr : bytes.data());
  return result;
}

std::string difference(const Kernel& kernel, KernelMemory& got, KernelMemory& expected,
                       double units) {
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const Buffer& buffer = kernel.buffers[b];
    if (buffer.role != BufferRole::Out) continue;
    for (size_t i = 0; i < static_cast<size_t>(buffer.elements); ++i) {
      const double have = element(got.bytes(b), buffer.dtype, i);
      const double want = element(expected.bytes(b), buffer.dtype, i);
      if (have == want || (std::isnan(have) && std::isnan(want))) continue;
      if (std::abs(have - want) <= units * unit_of(want, buffer.dtype)) continue;
      return base::str(buffer.name, "[", i, "]: got ", have, ", expected ", want);
    }
  }
  return {};
}

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  for (InstructionSet set :
       {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512})
    if (backends::llvm_cpu::host_has(set)) sets.push_back(set);
  return sets;
}

std::string difference_from_reference(const Kernel& kernel, InstructionSet set,
                                      KernelMemory::Values values, double units, uint64_t seed,
                                      loops::Sizes sizes) {
  const Kernel* const kernels[] = {&kernel};
  const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(kernels, sizes);
  if (!made[0].kernel) return "not generated: " + made[0].reason;
  const auto reference = loops::make_reference_compiler()->compile(kernels);
  KernelMemory got(kernel, values, seed), expected(kernel, values, seed);
  const bool good = made[0].kernel->launch(got.pointers(), kHostStream);
  const bool reference_good = reference[0].kernel->launch(expected.pointers(), kHostStream);
  if (good != reference_good) return base::str("in range: ", good, ", expected ", reference_good);
  return good ? difference(kernel, got, expected, units) : std::string();
}

}  // namespace tandem::test
