#pragma once

#include "tracing/inputs/mirrored_histories.h"
#include "tracing/recording/boxed_call.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem::tracing {

/// Memory that the function allocates and may fill by hand before the first op sees it.
///
/// `torch::tensor(std::vector{...})` allocates with `empty` and writes through the data pointer,
/// which no hook sees. So `empty` on the CPU gives a real tensor filled with a pattern; at its
/// first use it is a constant if anybody has written it, and an ordinary recorded `empty` if the
/// pattern is untouched. Wrapped numbers are constants, too, where they meet no other tensor.
class HostMemory {
 public:
  explicit HostMemory(Recording& recording) : recording_(recording) {}

  /// Answers a call of `aten::empty` with real memory, if it asks for plain memory of the CPU.
  bool make(BoxedCall& call);

  /// The traced tensor for memory that `make` gave out; nullopt for any other tensor.
  std::optional<at::Tensor> stand_in(const at::Tensor& tensor, const MirroredHistories& histories);

  /// The traced constant for a wrapped number of which an op computes by itself.
  at::Tensor number(const at::Tensor& number);
  /// Whether a traced tensor shows the memory of such a number.
  bool is_of_number(const at::Tensor& tensor) const;

  /// To the tensors by which the function knows such memory, the histories that it has got.
  void mirror_histories(MirroredHistories& histories) const;

  /// After the traced tensor was resized: autograd looks at the size of the real one where a custom
  /// function returns it.
  void follow_resize(const at::Tensor& tensor);

 private:
  struct Known {
    at::Tensor real;         // keeps the address from being used again
    at::Tensor traced;       // undefined until the first use
    c10::OperatorHandle op;  // empty, and what it was called with
    torch::jit::Stack operands;
    std::vector<at::Tensor> handles{};  // by which the function knows it
    bool has_history = false;  // a custom autograd function returned it; passed on to `traced`
  };
  /// A custom autograd function that returns memory of its own making is wired to the real tensor;
  /// its node belongs to the traced one.
  static void take_history(Known& known, const at::Tensor& tensor);
  at::Tensor constant(const at::Tensor& real);
  static void share_counter(const Known& known, const at::Tensor& handle);

  Recording& recording_;
  // By storage: `torch::empty` wraps what `at::empty` gave it into another tensor on the same
  // memory.
  std::unordered_map<const c10::StorageImpl*, Known> known_;
  struct Number {
    at::Tensor real, traced;
  };
  std::vector<Number> numbers_;
};

}  // namespace tandem::tracing
