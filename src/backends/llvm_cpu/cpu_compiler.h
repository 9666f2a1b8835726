#pragma once

#include "backends/llvm_cpu/code/instruction_set.h"
#include "loops/ir/kernel_compiler.h"

#include <memory>
#include <optional>

namespace tandem::backends::llvm_cpu {

/// Machine code for this CPU, made in the process by LLVM. Kernels are compiled on as many threads
/// as there are cores, and once while anybody holds an equal one. Without a set: the machine's
/// best, or what TANDEM_CPU names.
std::shared_ptr<loops::KernelCompiler> make_cpu_compiler(
    std::optional<InstructionSet> set = std::nullopt);

}  // namespace tandem::backends::llvm_cpu
