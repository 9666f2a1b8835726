#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <unordered_map>

namespace tandem::tracing {

/// Real tensors that have the history of their stand-ins while the function runs.
///
/// No dispatcher hook sees `torch::autograd::Function::apply`: it takes the edge of the tensor that
/// it is given, a closed-over one or what `torch::empty` gave. If the function has given such a
/// tensor a history, by a differentiable write, the real one knows nothing of it, and the gradient
/// of the custom function would be lost.
class MirroredHistories {
 public:
  MirroredHistories() = default;
  MirroredHistories(const MirroredHistories&) = delete;
  MirroredHistories& operator=(const MirroredHistories&) = delete;
  ~MirroredHistories() { take_back(); }

  /// Whenever an op has written: if the stand-in has a history and the real tensor has none.
  void mirror(const at::Tensor& real, const at::Tensor& stand_in);
  /// Whether the history that the real tensor has is a mirrored one.
  bool is_mirrored(const at::Tensor& real) const;
  /// All are as before. False if a custom function has given one of them another history.
  bool take_back();

 private:
  struct Mirrored {
    at::Tensor real;
    torch::autograd::Edge edge{};
    uint32_t version = 0;  // of a view: that for which it had its history
  };
  std::unordered_map<const c10::TensorImpl*, Mirrored> mirrored_;
};

}  // namespace tandem::tracing
