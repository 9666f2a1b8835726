#pragma once

#include "runtime/call/call_plan.h"
#include "tandem/ir/signature.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

namespace tandem::runtime {

/// Where an input lay when it was called with. What eager has saved of views of the input stays
/// there, even if set_data() gives the input other memory before the backward.
struct FoundMemory {
  c10::Storage storage{};
  int64_t offset = 0;

  bool is_of(const at::Tensor& tensor) const {
    return storage.unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl() &&
           offset == tensor.storage_offset();
  }
  /// Counts no reference if nothing has changed.
  void note(const at::Tensor& tensor) {
    if (storage.unsafeGetStorageImpl() != tensor.storage().unsafeGetStorageImpl())
      storage = tensor.storage();
    offset = tensor.storage_offset();
  }
};

/// Of closed-over inputs, in the order of CallPlan::lifted_as_found.
using FoundMemories = std::vector<FoundMemory>;

/// What the backward reads of a saved input: the tensor as it is now or, with `found`, what lies
/// where it was.
at::Tensor saved_input(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                       const FoundMemory* found);

/// A UserError if the tensor is of another kind now, which the kernels do not expect.
void require_kind(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                  const ir::InputFacts& facts);

/// The gradients of gradients are computed from the tensor itself: a UserError if it has other
/// memory by now.
void require_memory(const at::Tensor& tensor, const ir::InputFacts& facts,
                    const FoundMemory& found);

}  // namespace tandem::runtime
