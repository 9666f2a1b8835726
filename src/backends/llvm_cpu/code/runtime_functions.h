#pragma once

#include <span>

namespace tandem::backends::llvm_cpu {

/// A function that generated code may call.
struct RuntimeFunction {
  const char* name;
  void* address;
};

/// All of them: libm's, for floats and doubles, and what the code generator itself asks for.
std::span<const RuntimeFunction> runtime_functions();

}  // namespace tandem::backends::llvm_cpu
