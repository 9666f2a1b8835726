#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tandem::tracing {

/// The history of a determinant, such that gradients of gradients are eager's.
///
/// Where a gradient shall be differentiated, libtorch solves a system for regular matrices and
/// takes singular values for the others. It does not tell them apart in a trace, where there is no
/// data: then all go by singular values, whose derivative does not exist where two of them are
/// equal. Here both are recorded, each for matrices that it can do, and the determinant chooses.
class DetHistory {
 public:
  DetHistory(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t first);
  /// After the op: gives its result that history in place of libtorch's.
  void give(const torch::jit::Stack& stack) const;

 private:
  at::Tensor matrix_{};  // undefined: another op
};

}  // namespace tandem::tracing
