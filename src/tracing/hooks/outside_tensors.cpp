#include "tracing/hooks/outside_tensors.h"

#include "tracing/inputs/inputs.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tandem::tracing {
namespace {

bool is_outside_tensor(const at::Tensor& tensor) {
  // A wrapped number is a Scalar in disguise, unless it needs a gradient. A meta tensor is a shape
  // probe.
  return tensor.defined() && !is_traced(tensor) && !tensor.is_meta() &&
         (!tensor.unsafeGetTensorImpl()->is_wrapped_number() || tensor.requires_grad());
}

bool is_number(const at::Tensor& tensor) {
  return tensor.defined() && !is_traced(tensor) && !tensor.is_meta() &&
         tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

/// What an op computes of numbers alone is no number any more. It would come back as a tensor that
/// the function closes over, another one in each run. The graph shall compute it instead, unless
/// the op gives no tensor or writes the number.
bool computes_of_numbers(const BoxedCall& call) {
  const auto gives_tensors = [](const c10::Argument& result) {
    return result.type()->kind() == c10::TypeKind::TensorType ||
           result.type()->kind() == c10::TypeKind::ListType;
  };
  if (call.op.schema().is_mutable() ||
      std::ranges::none_of(call.op.schema().returns(), gives_tensors))
    return false;
  bool any = false, others = false;
  for (const c10::IValue& operand : call.operands()) {
    for_each_tensor(operand,
                    [&](const at::Tensor& tensor) { (is_number(tensor) ? any : others) = true; });
  }
  return any && !others;
}

}  // namespace

std::any lift_operands(BoxedCall& call) {
  Inputs& inputs = call.recording->inputs();
  const bool of_numbers = call.recording->has_inputs() && computes_of_numbers(call);
  const auto seen = [&](const at::Tensor& tensor) {
    if (of_numbers && is_number(tensor)) return inputs.host_memory().number(tensor);
    return is_outside_tensor(tensor) ? inputs.stand_in(tensor) : tensor;
  };
  for (size_t i = call.first; i < call.stack.size(); ++i) {
    c10::IValue& value = call.stack[i];
    if (value.isTensor()) {
      if (of_numbers || is_outside_tensor(value.toTensor())) value = seen(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = seen(tensor);
      value = c10::List<at::Tensor>(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        tensors.push_back(tensor ? std::optional(seen(*tensor)) : std::nullopt);
      value = std::move(tensors);
    }
  }
  return {};
}

bool make_host_memory(BoxedCall& call) { return call.recording->inputs().host_memory().make(call); }

std::any note_resized(BoxedCall& call) { return call.operand(0).toTensor(); }

void resize_host_memory(BoxedCall& call, std::any& left) {
  const auto& resized = *std::any_cast<at::Tensor>(&left);
  if (!is_traced(resized)) call.recording->inputs().host_memory().follow_resize(resized);
}

}  // namespace tandem::tracing
