#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace tandem::runtime {

/// Handles that own nothing, for the kernels of one call: the entry owns the lifted tensors, the
/// caller the arguments, and both outlive the call. Counting references up and down again would
/// cost more than the guard of a parameter.
class BorrowedTensors {
 public:
  explicit BorrowedTensors(size_t capacity) {
    if (capacity > kInline) heap_ = std::make_unique<Slot[]>(capacity);
  }
  BorrowedTensors(const BorrowedTensors&) = delete;
  BorrowedTensors& operator=(const BorrowedTensors&) = delete;
  // No destructor of a handle ever runs: it would give back a reference that was never taken.

  void push(const at::Tensor& tensor) { push({&tensor, 1}); }
  void push(std::span<const at::Tensor> tensors) {
    Slot* slot = slots() + count_;
    for (const at::Tensor& tensor : tensors) {
      new (slot++) at::Tensor(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(tensor));
    }
    count_ += tensors.size();
  }

  std::span<at::Tensor> tensors() {
    return {std::launder(reinterpret_cast<at::Tensor*>(slots())), count_};
  }

 private:
  static constexpr size_t kInline = 160;
  struct alignas(at::Tensor) Slot {
    std::byte bytes[sizeof(at::Tensor)];
  };

  Slot* slots() { return heap_ ? heap_.get() : inline_.data(); }

  size_t count_ = 0;
  std::unique_ptr<Slot[]> heap_;
  std::array<Slot, kInline> inline_;  // not initialised: a call pays for what it pushes
};

}  // namespace tandem::runtime
