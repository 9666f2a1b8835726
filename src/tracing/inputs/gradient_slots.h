#pragma once

#include "libtorch/slot_watch.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

namespace tandem::tracing {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// The text of a refusal. `name` is the tensor whose gradient is used, `function` the function of
/// libtorch that uses it; either may be empty.
std::string gradient_refusal(const std::string& name, const std::string& function,
                             const std::string& line = {});

/// The gradients (`.grad()`) of the tensors that a trace knows: real ones and stand-ins.
///
/// A gradient is a field of the tensor that no dispatcher hook sees, and a trace that changed one
/// would have an effect. So if this thread asks for one while the trace is open, it is refused
/// before it has it. What cannot be watched is put back.
class GradientSlots {
 public:
  GradientSlots();
  GradientSlots(const GradientSlots&) = delete;
  GradientSlots& operator=(const GradientSlots&) = delete;
  ~GradientSlots() { put_back(); }

  /// From here on. Once per tensor; a tensor that does not require grad may have no slot yet.
  void add(const at::Tensor& tensor);
  /// Those that could not be watched are as they were added. Nothing if they were so before, else
  /// one that was not.
  std::optional<at::Tensor> put_back();
  /// The tensor with this metadata; nothing if it is not among them.
  std::optional<at::Tensor> find(const c10::AutogradMetaInterface& metadata) const;

 private:
  struct Slot {
    // Weakly: whether somebody else holds a closed-over tensor is looked at.
    WeakTensor tensor;
    at::Tensor gradient;  // of one that cannot be watched
    libtorch::SlotWatch watch;
  };
  std::deque<Slot> slots_;
  std::unordered_map<const c10::TensorImpl*, size_t> position_;
};

}  // namespace tandem::tracing
