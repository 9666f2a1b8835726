#pragma once

#include "backends/llvm_cpu/kernel_function.h"
#include "backends/llvm_cpu/object_code.h"

#include <memory>

namespace tandem::backends::llvm_cpu {

/// A kernel in memory; its code goes when it does. Thread-safe.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  KernelFunction function() const { return function_; }

 protected:
  KernelFunction function_ = nullptr;
};

/// Links the object into the process. Also right in a child after fork, which uses what its parent
/// loaded and loads its own.
std::unique_ptr<LoadedKernel> load(const ObjectCode& object);

}  // namespace tandem::backends::llvm_cpu
