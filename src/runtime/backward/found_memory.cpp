#include "runtime/backward/found_memory.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "tandem/error.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

namespace tandem::runtime {
namespace {

at::Tensor tensor_at(const FoundMemory& found, const CallPlan::SavedInput& plan) {
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty({0}, at::TensorOptions().dtype(plan.dtype).device(found.storage.device()))
      .set_(found.storage, found.offset, plan.sizes, plan.strides);
}

bool is_of_kind(const at::Tensor& tensor, const CallPlan::SavedInput& plan) {
  return tensor.sizes() == plan.sizes && tensor.scalar_type() == plan.dtype;
}

}  // namespace

at::Tensor saved_input(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                       const FoundMemory* found) {
  const bool same_strides = tensor.strides() == plan.strides;
  if (found) {
    const bool unchanged = found->is_of(tensor) && same_strides && is_of_kind(tensor, plan);
    return unchanged ? tensor : tensor_at(*found, plan);
  }
  if (same_strides) return tensor;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty_strided(plan.sizes, plan.strides, tensor.options()).copy_(tensor);
}

void require_kind(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                  const ir::InputFacts& facts) {
  if (is_of_kind(tensor, plan)) return;
  throw UserError("call",
                  base::str("the backward reads ", ir::to_string(facts.role),
                            ", and set_data() has given it other sizes or another dtype since the "
                            "call",
                            "\n  compiled: ", ir::to_string(*facts.type),
                            "\n  now:      ", ir::to_string(ir::type_of(tensor)),
                            "\n  remedy:   run the backward before set_data()"));
}

void require_memory(const at::Tensor& tensor, const ir::InputFacts& facts,
                    const FoundMemory& found) {
  if (found.is_of(tensor)) return;
  throw UserError("call",
                  base::str("backward with create_graph=true needs ", ir::to_string(facts.role),
                            " as it was in the call, and set_data() has given it other memory "
                            "since",
                            "\n  remedy: run the backward before set_data()"));
}

}  // namespace tandem::runtime
