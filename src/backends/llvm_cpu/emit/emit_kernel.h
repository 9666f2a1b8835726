#pragma once

// Includes LLVM: only for the files that tandem_llvm_sources names.

#include "backends/llvm_cpu/schedule.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>

namespace tandem::backends::llvm_cpu {

/// A module with one function `symbol` of the type `KernelFunction` (kernel_function.h) that walks
/// a range of the schedule's units. Of a form (form.h) it reads the sizes from `numbers`.
std::unique_ptr<llvm::Module> emit_kernel(const Schedule& schedule, const std::string& symbol,
                                          llvm::LLVMContext& context);

}  // namespace tandem::backends::llvm_cpu
