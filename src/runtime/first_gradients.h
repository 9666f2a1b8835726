#pragma once

#include "tandem/ir/signature.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <vector>

namespace tandem::runtime {

/// Waits for the first gradient of a closed-over leaf that no named module owns and that had none
/// when the entry was made.
///
/// A trace does not see that the function asks for the gradient of a tensor before an op has met
/// it; with no gradient there, `zero_grad()` and `step()` do nothing that could be seen.
class FirstGradients {
 public:
  /// `lifted` lives as long as this. An entry for inference waits for nothing.
  FirstGradients(const ir::Signature& signature, const std::vector<at::Tensor>& lifted);

  /// True once, for one thread: one of them has a gradient now.
  bool appeared() { return waits_.load(std::memory_order_relaxed) && look(); }
  /// It has not been looked at after all.
  void wait_again() { waits_.store(true, std::memory_order_relaxed); }

 private:
  bool look();

  std::vector<const at::Tensor*> leaves_;  // no handle: who else holds them is counted
  std::atomic<bool> waits_{false};
};

}  // namespace tandem::runtime
