#pragma once

#include "tracing/lent_histories.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem::tracing {

/// Memory that the function allocates and may fill by hand before the first op sees it.
///
/// `torch::tensor(std::vector{...})` allocates with `empty` and writes through the data pointer,
/// which no hook sees. So `empty` on the CPU gives a real tensor filled with a pattern; at its
/// first use it is a constant if anybody has written it, and an ordinary recorded `empty` if the
/// pattern is untouched.
class HostTensors {
 public:
  /// Answers `aten::empty` on the CPU with real memory; false for every other call.
  bool make(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  /// The traced tensor for memory that `make` gave out; nullopt for any other tensor.
  std::optional<at::Tensor> stand_in(const at::Tensor& tensor);

  /// To the tensors by which the function knows such memory, the histories that it has got.
  void lend(LentHistories& lent) const;

  /// After the traced tensor was resized: autograd looks at the size of the real one where a custom
  /// function returns it.
  void follow_resize(const at::Tensor& tensor);

 private:
  struct Known {
    at::Tensor real;    // keeps the address from being used again
    at::Tensor traced;  // undefined until the first use
    torch::jit::Stack call;
    std::vector<at::Tensor> handles{};  // by which the function knows it
    bool has_history = false;  // a custom autograd function returned it; passed on to `traced`
  };
  /// A custom autograd function that returns memory of its own making is wired to the real tensor;
  /// its node belongs to the traced one.
  static void take_history(Known& known, const at::Tensor& tensor);

  // By storage: `torch::empty` wraps what `at::empty` gave it into another tensor on the same
  // memory.
  std::unordered_map<const c10::StorageImpl*, Known> known_;
};

}  // namespace tandem::tracing
