#pragma once

#include "libtorch/slot_watch.h"
#include "tandem/ir/signature.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <vector>

namespace tandem::runtime {

/// Waits for the first gradient of a closed-over leaf that no named module owns and that had none
/// when the entry was made.
///
/// A trace does not see that the function asks for the gradient of a tensor before an op has met
/// it; with no gradient there, `zero_grad()` and `step()` do nothing that could be seen.
class FirstGradients {
 public:
  /// `lifted` lives as long as this.
  FirstGradients(const ir::Signature& signature, const std::vector<at::Tensor>& lifted) {
    for (size_t i = 0; i < lifted.size(); ++i) {
      const ir::InputFacts& facts = signature.inputs[i];
      if (facts.role.role == ir::Role::Lifted && facts.requires_grad && facts.is_leaf &&
          !libtorch::noted_gradient(lifted[i]).defined()) {
        leaves_.push_back(&lifted[i]);
      }
    }
    waits_.store(!leaves_.empty(), std::memory_order_relaxed);
  }

  /// True once, for one thread: one of them has a gradient now.
  bool appeared() {
    if (!waits_.load(std::memory_order_relaxed)) return false;
    for (const at::Tensor* leaf : leaves_) {
      if (libtorch::noted_gradient(*leaf).defined())
        return waits_.exchange(false, std::memory_order_relaxed);
    }
    return false;
  }
  /// It has not been looked at after all.
  void wait_again() { waits_.store(true, std::memory_order_relaxed); }

 private:
  std::vector<const at::Tensor*> leaves_;  // no handle: who else holds them is counted
  std::atomic<bool> waits_{false};
};

}  // namespace tandem::runtime
