#include "tracing/hooks/lazy_memory.h"

#include "tracing/hooks/kept_strides.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>

#include <vector>

namespace tandem::tracing {
namespace {

namespace functionalization = at::functionalization;

struct Flags {
  bool conj = false, neg = false;

  friend bool operator==(const Flags&, const Flags&) = default;
};

Flags flags_of(const at::Tensor& tensor) { return {tensor.is_conj(), tensor.is_neg()}; }

struct Noted {
  at::Tensor tensor;
  const void* memory;  // for set_(); a handle would keep it from being resized
  Flags flags;
};

functionalization::FunctionalStorageImpl& memory_of(const at::Tensor& tensor) {
  return static_cast<functionalization::FunctionalStorageImpl&>(
      *tensor.storage().unsafeGetStorageImpl());
}

/// What ops compute of memory with gaps has none, and strides stay in eager.
at::Tensor with_flags(const at::Tensor& value, Flags wanted) {
  at::Tensor made = at::resolve_neg(at::resolve_conj(value));
  if (wanted.neg) made = at::neg(made);
  if (wanted.conj) made = at::conj_physical(made);
  made = laid_out_like(made, value);
  if (wanted.neg) made = at::_neg_view(made);
  return wanted.conj ? at::_conj(made) : made;
}

}  // namespace

std::any note_lazy_memory(BoxedCall& call) {
  std::vector<Noted> noted;
  // Only of views of lazy views is a value lazy that should not be: most programs have none.
  if (!call.recording->has_lazy_values()) return noted;
  for (const c10::IValue& operand : call.operands()) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !functionalization::impl::isFunctionalTensor(tensor)) return;
      noted.push_back({tensor, &memory_of(tensor), flags_of(memory_of(tensor).base())});
    });
  }
  return noted;
}

void keep_memory_as_lazy(BoxedCall&, std::any& noted) {
  for (const Noted& one : *std::any_cast<std::vector<Noted>>(&noted)) {
    functionalization::FunctionalStorageImpl& memory = memory_of(one.tensor);
    if (&memory != one.memory) continue;
    const at::AutoDispatchBelowADInplaceOrView below;
    // Before any view is taken of it again: there are views that a lazy value does not have.
    memory.apply_updates();
    if (flags_of(memory.base()) == one.flags) continue;
    memory.add_update(with_flags(memory.base(), one.flags), {});
    // What is taken of the tensor next has the flags of its value.
    current_value(one.tensor);
  }
}

std::any resolve_within_write(BoxedCall& call) {
  const at::Tensor& value = call.operand(0).toTensor();
  if (call.recording != nullptr && call.recording->is_writing() && as_traced(value) != nullptr)
    call.operand(0) = value.is_complex() ? at::resolve_conj(value) : at::resolve_neg(value);
  return {};
}

}  // namespace tandem::tracing
