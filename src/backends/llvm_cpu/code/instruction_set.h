#pragma once

#include <optional>
#include <string_view>

namespace tandem::backends::llvm_cpu {

/// What kernels are generated for; each level holds the ones before it.
enum class InstructionSet { Baseline, Avx2, Avx512 };

/// "baseline", "avx2" or "avx512".
std::string_view name(InstructionSet set);
std::optional<InstructionSet> find_instruction_set(std::string_view name);

/// Floats in one vector register: 4, 8 or 16.
int lanes(InstructionSet set);

bool host_has(InstructionSet set);

/// The best that this machine has, or what TANDEM_CPU names. Nothing if the processor is none that
/// kernels can be made for, or TANDEM_CPU is `none`. A UserError if the name is unknown or the
/// machine cannot run it. Read anew in each call, so that tests can try all of them.
std::optional<InstructionSet> chosen_instruction_set();

}  // namespace tandem::backends::llvm_cpu
