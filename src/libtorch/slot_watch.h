#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

namespace tandem::libtorch {

/// Reports that host code asks for `.grad()` or `.mutable_grad()` of a tensor, which is a field and
/// goes past the dispatcher.
///
/// libtorch asks by virtual functions of the tensor's autograd metadata. While it is watched, the
/// metadata has the table of a class of ours, which differs in these functions only; no field
/// moves, so other threads may use the tensor meanwhile. A tensor without metadata, or with
/// metadata of a class that libtorch does not have, is not watched.
class SlotWatch {
 public:
  /// Called in the thread that asks, before it is answered; what it throws comes out of `.grad()`.
  /// `frame` and `return_address` are those of the function that libtorch entered. One for the
  /// process.
  using OnAccess = void (*)(const c10::AutogradMetaInterface& metadata, const void* frame,
                            const void* return_address);
  static void set_on_access(OnAccess on_access);

  explicit SlotWatch(const at::Tensor& tensor);
  SlotWatch(SlotWatch&& other) noexcept;
  SlotWatch& operator=(SlotWatch&&) = delete;
  ~SlotWatch();

  /// Null: not watched.
  const c10::AutogradMetaInterface* metadata() const { return metadata_; }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  c10::AutogradMetaInterface* metadata_ = nullptr;
};

/// `.grad()` as it is noted, watched or not.
const at::Tensor& noted_gradient(const at::Tensor& tensor);
/// Writes it, watched or not.
void set_gradient(const at::Tensor& tensor, const at::Tensor& gradient);

}  // namespace tandem::libtorch
