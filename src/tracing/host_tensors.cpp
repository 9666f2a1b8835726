#include "tracing/host_tensors.h"

#include "tracing/ambient.h"
#include "tracing/recording.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/lift_fresh.h>
#include <c10/core/DefaultDtype.h>
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

const c10::OperatorHandle& empty_op() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format");
  return op;
}

bool untouched(const at::Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  return std::all_of(bytes, bytes + tensor.nbytes(), [](unsigned char b) { return b == kPattern; });
}

}  // namespace

void HostTensors::take_history(Known& known, const at::Tensor& tensor) {
  if (known.has_history || current_recording()->lent_histories().is_lent(tensor)) return;
  if (!tensor.grad_fn()) return;
  known.has_history = true;
  const auto& node = tensor.grad_fn();
  torch::autograd::impl::set_gradient_edge(known.traced,
                                           torch::autograd::Edge(node, tensor.output_nr()));
}

bool HostTensors::make(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (op.operator_name() != empty_op().operator_name()) return false;
  // (size, *, dtype, layout, device, pin_memory, memory_format)
  const size_t base = stack.size() - op.schema().arguments().size();
  const c10::IValue &layout = stack[base + 2], &device = stack[base + 3], &pinned = stack[base + 4];
  if (!layout.isNone() && layout.toLayout() != c10::kStrided) return false;
  if (!device.isNone() && !device.toDevice().is_cpu()) return false;
  if (!pinned.isNone() && pinned.toBool()) return false;

  torch::jit::Stack call(stack.begin() + static_cast<int64_t>(base), stack.end());
  {
    OutsideTrace outside;
    op.callBoxed(stack);
  }
  at::Tensor real = stack.back().toTensor();
  if (real.nbytes() > 0) {
    std::memset(real.mutable_data_ptr(), real.nbytes() <= kAlwaysConstant ? 0 : kPattern,
                real.nbytes());
  }
  known_[real.storage().unsafeGetStorageImpl()] = {real, at::Tensor(), std::move(call)};
  return true;
}

void HostTensors::lend(LentHistories& lent) const {
  for (const auto& [storage, known] : known_) {
    for (const at::Tensor& handle : known.handles) lent.lend(handle, known.traced);
  }
}

void HostTensors::follow_resize(const at::Tensor& tensor) {
  const auto it = known_.find(tensor.storage().unsafeGetStorageImpl());
  if (it == known_.end()) return;
  OutsideTrace outside;
  at::AutoDispatchBelowADInplaceOrView below;
  tensor.resize_(it->second.traced.sizes());
}

std::optional<at::Tensor> HostTensors::stand_in(const at::Tensor& tensor) {
  auto it = known_.find(tensor.storage().unsafeGetStorageImpl());
  if (it == known_.end()) return std::nullopt;
  Known& known = it->second;
  if (!known.traced.defined()) {
    if (known.real.nbytes() > kAlwaysConstant && untouched(known.real)) {
      torch::jit::Stack stack = known.call;
      empty_op().callBoxed(stack);
      known.traced = stack.back().toTensor();
    } else {
      Recording& recording = *current_recording();
      OutsideTrace outside;
      ir::Node& node = recording.graph().add_constant(known.real.detach().clone());
      recording.graph().set_location(node, recording.lines().current());
      known.traced = at::functionalization::impl::to_functional_tensor(
          recording.wrap(node.results()[0], recording.metadata().meta_of(known.real)));
    }
  }
  const auto is_same = [&](const at::Tensor& handle) { return handle.is_same(tensor); };
  if (std::ranges::none_of(known.handles, is_same)) known.handles.push_back(tensor);
  if (tensor.requires_grad() && tensor.is_leaf() && !known.traced.requires_grad()) {
    known.traced.set_requires_grad(true);
  }
  take_history(known, tensor);
  return known.traced;
}

}  // namespace tandem::tracing
