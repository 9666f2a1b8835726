#pragma once

#include "backends/llvm_cpu/code/code_image.h"
#include "backends/llvm_cpu/code/kernel_function.h"

#include <cstddef>
#include <vector>

namespace tandem::backends::llvm_cpu {

/// An image in memory; its code goes when it does. Thread-safe, and right in a child after fork.
class LoadedKernel {
 public:
  /// An InternalError if the image calls what kernels may not call, or if the process may not make
  /// memory executable.
  explicit LoadedKernel(CodeImage image);
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  KernelFunction function() const { return function_; }
  /// What it was made of.
  CodeImage image() const;

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;  // of the image
  int64_t entry_ = 0;
  std::vector<CodeImage::Import> imports_;
  KernelFunction function_ = nullptr;
};

}  // namespace tandem::backends::llvm_cpu
