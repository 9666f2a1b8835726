#include "tracing/inputs/host_memory.h"

#include "libtorch/version.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/lift_fresh.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

namespace tandem::tracing {
namespace {

constexpr unsigned char kPattern = 0xA5;
/// A user may well write the pattern itself into a few bytes; so small memory always counts as
/// written.
constexpr size_t kAlwaysConstant = 64;

bool untouched(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  return std::all_of(bytes, bytes + tensor.nbytes(), [](unsigned char b) { return b == kPattern; });
}

}  // namespace

void HostMemory::take_history(Known& known, const at::Tensor& tensor) {
  if (known.has_history || !tensor.grad_fn()) return;
  known.has_history = true;
  const auto& node = tensor.grad_fn();
  torch::autograd::impl::set_gradient_edge(known.traced,
                                           torch::autograd::Edge(node, tensor.output_nr()));
}

/// A custom autograd function saves what the function has, and looks later whether it was written.
void HostMemory::share_counter(const Known& known, const at::Tensor& handle) {
  c10::TensorImpl& traced = *known.traced.unsafeGetTensorImpl();
  c10::TensorImpl& real = *handle.unsafeGetTensorImpl();
  if (!traced.version_counter().enabled() || !real.version_counter().enabled()) return;
  if (known.handles.empty()) {
    traced.set_version_counter(real.version_counter());
  } else {
    real.set_version_counter(traced.version_counter());
  }
}

bool HostMemory::make(BoxedCall& call) {
  // (size, *, dtype, layout, device, pin_memory, memory_format)
  const c10::IValue &layout = call.operand(2), &device = call.operand(3), &pinned = call.operand(4);
  if (!layout.isNone() && layout.toLayout() != c10::kStrided) return false;
  if (!device.isNone() && !device.toDevice().is_cpu()) return false;
  if (!pinned.isNone() && pinned.toBool()) return false;

  torch::jit::Stack operands = call.operands().vec();
  {
    OutsideTrace outside;
    call.op.callBoxed(call.stack);
  }
  at::Tensor real = call.stack.back().toTensor();
  if (real.nbytes() > 0) {
    std::memset(real.mutable_data_ptr(), real.nbytes() <= kAlwaysConstant ? 0 : kPattern,
                real.nbytes());
  }
  known_.insert_or_assign(real.storage().unsafeGetStorageImpl(),
                          Known{real, at::Tensor(), call.op, std::move(operands)});
  return true;
}

void HostMemory::mirror_histories(MirroredHistories& histories) const {
  for (const auto& [storage, known] : known_) {
    for (const at::Tensor& handle : known.handles) histories.mirror(handle, known.traced);
  }
}

void HostMemory::follow_resize(const at::Tensor& tensor) {
  const auto it = known_.find(tensor.storage().unsafeGetStorageImpl());
  if (it == known_.end()) return;
  OutsideTrace outside;
  at::AutoDispatchBelowADInplaceOrView below;
  tensor.resize_(it->second.traced.sizes());
}

at::Tensor HostMemory::constant(const at::Tensor& real) {
  OutsideTrace outside;
  const at::Tensor copy = real.detach().clone();
  if (real.unsafeGetTensorImpl()->is_wrapped_number())
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  ir::Node& node = recording_.graph().add_constant(copy);
  recording_.graph().set_location(node, recording_.lines().current());
  const at::Tensor traced = recording_.wrap(node.results()[0], recording_.metadata().meta_of(real));
  // Functionalization would pass a wrapped number through.
  c10::TensorImpl& impl = *traced.unsafeGetTensorImpl();
  const bool is_number = impl.is_wrapped_number();
  if (is_number) impl.set_wrapped_number(false);
  at::Tensor functional = at::functionalization::impl::to_functional_tensor(traced);
  if (is_number) impl.set_wrapped_number(true);
  return functional;
}

at::Tensor HostMemory::number(const at::Tensor& number) {
  for (const Number& known : numbers_) {
    if (known.real.is_same(number)) return known.traced;
  }
  return numbers_.emplace_back(number, constant(number)).traced;
}

bool HostMemory::is_of_number(const at::Tensor& tensor) const {
  return std::ranges::any_of(numbers_, [&](const Number& known) {
    return tensor.has_storage() && known.traced.storage().is_alias_of(tensor.storage());
  });
}

std::optional<at::Tensor> HostMemory::stand_in(const at::Tensor& tensor,
                                               const MirroredHistories& histories) {
  auto it = known_.find(tensor.storage().unsafeGetStorageImpl());
  if (it == known_.end()) return std::nullopt;
  Known& known = it->second;
  if (!known.traced.defined()) {
    if (known.real.nbytes() > kAlwaysConstant && untouched(known.real)) {
      torch::jit::Stack stack = known.operands;
      // A result that no op has seen comes here from outside of ops: lifting must not answer again.
      const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKeySet{libtorch::kLiftKey});
      known.op.callBoxed(stack);
      known.traced = stack.back().toTensor();
    } else {
      known.traced = constant(known.real);
    }
  }
  const auto is_same = [&](const at::Tensor& handle) { return handle.is_same(tensor); };
  if (std::ranges::none_of(known.handles, is_same)) {
    share_counter(known, tensor);
    known.handles.push_back(tensor);
  }
  if (tensor.requires_grad() && tensor.is_leaf() && !known.traced.requires_grad()) {
    known.traced.set_requires_grad(true);
  }
  if (!histories.is_mirrored(tensor)) take_history(known, tensor);
  return known.traced;
}

}  // namespace tandem::tracing
