#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace tandem::tracing {

/// The strides of what an in-place op, or one with an `out` argument, is about to write.
///
/// Functionalization gives a written tensor the strides that the out-of-place form chooses for its
/// result. Eager writes into the memory that is there: strides stay, and host code decides by them
/// (`contiguous()`, `reshape()` and `view()` copy, alias or raise).
class KeptStrides {
 public:
  KeptStrides(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t first);
  /// Whether the op writes a tensor of the trace.
  bool is_write() const { return written_.defined(); }
  /// After the op: lays the new value out as before, by recorded ops, if it is not.
  void restore() const;

 private:
  at::Tensor written_{};
  std::vector<int64_t> sizes_{}, strides_{};
  bool is_dense_ = false, fills_out_ = false;
};

}  // namespace tandem::tracing
