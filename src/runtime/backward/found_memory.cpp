#include "runtime/backward/found_memory.h"

#include "base/error.h"
#include "ir/gradient_arguments.h"
#include "ir/tensor_data.h"
#include "tandem/error.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

namespace tandem::runtime {
namespace {

struct Extent {
  at::IntArrayRef sizes, strides;
  c10::ScalarType dtype;
};

at::Tensor tensor_at(const FoundMemory& found, const Extent& extent) {
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty({0}, at::TensorOptions().dtype(extent.dtype).device(found.storage.device()))
      .set_(found.storage, found.offset, extent.sizes, extent.strides);
}

bool is_of_kind(const at::Tensor& tensor, const CallPlan::SavedInput& plan) {
  return tensor.sizes() == plan.sizes && tensor.scalar_type() == plan.dtype;
}

}  // namespace

at::Tensor FoundMemory::tensor(const ir::TensorType& type) const {
  return tensor_at(*this, {type.static_sizes(), type.static_strides(), type.dtype});
}

at::Tensor saved_input(const at::Tensor& tensor, const CallPlan::SavedInput& plan,
                       const FoundMemory* found) {
  const bool same_strides = tensor.strides() == plan.strides;
  if (found) {
    const bool unchanged = found->is_of(tensor) && same_strides && is_of_kind(tensor, plan);
    return unchanged ? tensor : tensor_at(*found, {plan.sizes, plan.strides, plan.dtype});
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

void refuse_exchanged(const ir::InputFacts& facts) {
  throw UserError("call",
                  base::str(ir::name_of_backward(), " needs ", ir::to_string(facts.role),
                            " as it was in the call, and set_data() has given it other memory "
                            "since",
                            "\n  remedy: run the backward before set_data()"));
}

}  // namespace tandem::runtime
