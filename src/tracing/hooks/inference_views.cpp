#include "tracing/hooks/inference_views.h"

#include "libtorch/error_texts.h"
#include "ops/op_table.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <vector>

namespace tandem::tracing {
namespace {

/// In eager, too, a view of an ordinary tensor is one inside an inference region; it remembers
/// where it was made.
void mark_inference_view(const at::Tensor& tensor) {
  if (!tensor.is_view()) return;
  torch::autograd::impl::get_view_autograd_meta(tensor)->set_creation_meta(
      torch::autograd::CreationMeta::INFERENCE_MODE);
}

/// Memory that some result shows.
bool shows(const BoxedCall& call, const c10::Storage& memory) {
  bool any = false;
  for (const c10::IValue& result : call.operands()) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      any = any || (tensor.defined() && tensor.storage().is_alias_of(memory));
    });
  }
  return any;
}

}  // namespace

bool meets_lazy_fallbacks(const c10::OperatorHandle& op) {
  const auto has = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  return has(c10::DispatchKey::CompositeImplicitAutograd) &&
         !(has(c10::DispatchKey::Conjugate) && has(c10::DispatchKey::Negative)) &&
         std::ranges::none_of(op.schema().arguments(), [](const c10::Argument& argument) {
           return argument.alias_info() != nullptr;
         });
}

std::any resolve_in_inference_mode(BoxedCall& call) {
  const bool by_caller =
      call.recording->has_inputs() && call.recording->inputs().in_inference_mode();
  if (!by_caller && !c10::InferenceMode::is_enabled()) return {};
  const auto resolved = [&](const at::Tensor& tensor) {
    const auto falls_back = [&](c10::DispatchKey key) {
      return !call.op.hasKernelForDispatchKey(key);
    };
    at::Tensor plain = tensor;
    if (!plain.defined()) return plain;
    if (plain.is_neg() && falls_back(c10::DispatchKey::Negative)) plain = at::resolve_neg(plain);
    if (plain.is_conj() && falls_back(c10::DispatchKey::Conjugate)) plain = at::resolve_conj(plain);
    return plain;
  };
  for (size_t i = call.first; i < call.stack.size(); ++i) {
    c10::IValue& value = call.stack[i];
    if (value.isTensor()) {
      value = resolved(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = resolved(tensor);
      value = c10::List<at::Tensor>(tensors);
    }
  }
  return {};
}

bool call_in_inference_mode(BoxedCall& call) {
  if (!c10::InferenceMode::is_enabled()) return false;
  const torch::jit::Stack operands = call.operands().vec();
  try {
    call.op.callBoxed(call.stack);
    return true;
  } catch (const c10::Error& error) {
    if (libtorch::meaning_of(error.what_without_backtrace()) !=
        libtorch::ErrorMeaning::InferenceView)
      throw;
  }
  call.drop();
  call.stack.insert(call.stack.end(), operands.begin(), operands.end());
  const WithoutInferenceMode normal;
  call.op.callBoxed(call.stack);
  for (const c10::IValue& result : call.operands()) for_each_tensor(result, mark_inference_view);
  return true;
}

bool takes_views(const c10::OperatorHandle& op) {
  // detach() gives a version counter, and with it the right to write.
  return ops::info(op).is_view && !op.schema().is_mutable() && op.schema().name() != "aten::detach";
}

bool view_inference_tensor(BoxedCall& call) {
  if (c10::InferenceMode::is_enabled() || !call.operand(0).isTensor()) return false;
  const at::Tensor source = call.operand(0).toTensor();
  if (!is_traced(source) || !source.is_inference()) return false;
  const torch::jit::Stack operands = call.operands().vec();
  call.op.callBoxed(call.stack);
  if (!shows(call, source.storage())) return true;  // reshape() has copied
  call.drop();
  call.stack.insert(call.stack.end(), operands.begin(), operands.end());
  const c10::InferenceMode region;
  call.op.callBoxed(call.stack);
  return true;
}

}  // namespace tandem::tracing
