#include "tracing/inputs/gradient_slots.h"

#include "base/error.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/recording.h"

namespace tandem::tracing {
namespace {

void refuse_access(const c10::AutogradMetaInterface& metadata, const void* frame,
                   const void* return_address) {
  Recording* const recording = current_recording();
  if (recording == nullptr || !recording->has_inputs()) return;
  recording->inputs().refuse_gradient(metadata, {frame, return_address});
}

}  // namespace

std::string gradient_refusal(const std::string& name, const std::string& function,
                             const std::string& line) {
  std::string text = "the compiled function ";
  if (!function.empty()) text += "calls " + function;
  if (!function.empty() && !name.empty()) text += ", which ";
  if (!name.empty()) text += "uses .grad() of " + name;
  return base::str(text, base::detail_line("at", line),
                   "\n  remedy: clear and clip gradients and step optimizers outside the compiled "
                   "function; inside it, tandem::grad(outputs, inputs) returns gradients");
}

GradientSlots::GradientSlots() { libtorch::SlotWatch::set_on_access(&refuse_access); }

void GradientSlots::add(const at::Tensor& tensor) {
  if (!position_.try_emplace(tensor.unsafeGetTensorImpl(), slots_.size()).second) return;
  Slot slot{WeakTensor(tensor.getIntrusivePtr()), {}, libtorch::SlotWatch(tensor)};
  if (slot.watch.metadata() == nullptr) slot.gradient = libtorch::noted_gradient(tensor);
  slots_.push_back(std::move(slot));
}

std::optional<at::Tensor> GradientSlots::put_back() {
  std::optional<at::Tensor> changed;
  for (const Slot& slot : slots_) {
    // Whoever has changed a watched one was another thread, which may.
    const auto held = slot.watch.metadata() == nullptr ? slot.tensor.lock() : nullptr;
    if (!held) continue;
    const at::Tensor tensor(held);
    if (libtorch::noted_gradient(tensor).is_same(slot.gradient)) continue;
    libtorch::set_gradient(tensor, slot.gradient);
    changed = tensor;
  }
  return changed;
}

std::optional<at::Tensor> GradientSlots::find(const c10::AutogradMetaInterface& metadata) const {
  for (const Slot& slot : slots_) {
    if (slot.watch.metadata() != &metadata) continue;
    if (const auto held = slot.tensor.lock()) return at::Tensor(held);
  }
  return std::nullopt;
}

}  // namespace tandem::tracing
