#include "tracing/hooks/inference_views.h"

#include "libtorch/error_texts.h"
#include "ops/op_table.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

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
