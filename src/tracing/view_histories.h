#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <vector>

namespace tandem::tracing {

/// The histories of closed-over views, as a trace has met them.
///
/// Libtorch makes the history of a view anew when somebody asks for it after a write, such as a
/// custom function that is given the view itself. If the call is refused, no write has happened,
/// and the view shall have the history that it had.
class ViewHistories {
 public:
  ViewHistories();
  ViewHistories(const ViewHistories&) = delete;
  ViewHistories& operator=(const ViewHistories&) = delete;
  ~ViewHistories();

  /// Does not keep the tensor alive; it must outlive this object.
  void note(const at::Tensor& real);

 private:
  struct Noted {
    c10::TensorImpl* view;
    torch::autograd::Edge edge{};
    uint32_t version = 0;
  };
  std::vector<Noted> noted_;
  const int exceptions_;  // in flight when the trace began
};

}  // namespace tandem::tracing
