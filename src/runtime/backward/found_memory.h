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
  /// A tensor of that kind there, which autograd does not know.
  at::Tensor tensor(const ir::TensorType& type) const;
  /// Counts no reference if nothing has changed.
  void note(const at::Tensor& tensor) {
    if (storage.unsafeGetStorageImpl() != tensor.storage().unsafeGetStorageImpl())
      storage = tensor.storage();
    offset = tensor.storage_offset();
  }
};

/// Of closed-over inputs, in the order of EntryState::noted_lifted().
using FoundMemories = std::vector<FoundMemory>;

/// What the backward reads of a saved input: the tensor as it is now or, with `found`, what lies
/// where it was.
at::Tensor saved_input(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                       const FoundMemory* found);

/// A UserError if the tensor is of another kind now, which the kernels do not expect.
void require_kind(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                  const ir::InputFacts& facts);

/// A UserError: the function cannot be traced again with the input as it was in the call and as it
/// is now.
[[noreturn]] void refuse_exchanged(const ir::InputFacts& facts);

}  // namespace tandem::runtime
