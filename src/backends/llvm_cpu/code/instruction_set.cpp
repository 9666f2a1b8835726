#include "backends/llvm_cpu/code/instruction_set.h"

#include "base/error.h"

#include <array>
#include <cstdlib>
#include <string>

namespace tandem::backends::llvm_cpu {
namespace {

constexpr std::array kAll = {InstructionSet::Avx512, InstructionSet::Avx2,
                             InstructionSet::Baseline};

}  // namespace

std::string_view name(InstructionSet set) {
  switch (set) {
    case InstructionSet::Avx512:
      return "avx512";
    case InstructionSet::Avx2:
      return "avx2";
    case InstructionSet::Baseline:
      break;
  }
  return "baseline";
}

std::optional<InstructionSet> find_instruction_set(std::string_view wanted) {
  for (InstructionSet set : kAll) {
    if (wanted == name(set)) return set;
  }
  return std::nullopt;
}

int lanes(InstructionSet set) {
  switch (set) {
    case InstructionSet::Avx512:
      return 16;
    case InstructionSet::Avx2:
      return 8;
    case InstructionSet::Baseline:
      break;
  }
  return 4;
}

#if defined(__x86_64__)
bool host_has(InstructionSet set) {
  // The compiler's own test also asks the operating system whether it saves these registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  switch (set) {
    case InstructionSet::Avx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    case InstructionSet::Avx2:
      return avx2;
    case InstructionSet::Baseline:
      break;
  }
  return true;
}
#else
bool host_has(InstructionSet) { return false; }
#endif

std::optional<InstructionSet> chosen_instruction_set() {
  const char* asked = std::getenv("TANDEM_CPU");
  const std::string wanted = asked ? asked : "";
  if (wanted == "none") return std::nullopt;
  for (InstructionSet set : kAll) {
    if (wanted.empty() && host_has(set)) return set;
    if (wanted != name(set)) continue;
    TANDEM_REQUIRE(host_has(set), "lower", "TANDEM_CPU asks for ", wanted,
                   ", which this machine does not have",
                   "\n  remedy: unset TANDEM_CPU, the best set of instructions is then chosen");
    return set;
  }
  if (wanted.empty()) return std::nullopt;
  throw UserError("lower", base::str("TANDEM_CPU is \"", wanted, "\"",
                                     "\n  known:  avx512, avx2, baseline, none",
                                     "\n  remedy: unset it, or give one of these"));
}

}  // namespace tandem::backends::llvm_cpu
