#include "runtime/call_node.h"

#include "base/error.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

/// The backward was recorded for a tangent with the strides of its result; a recorded `view` may
/// need them.
at::Tensor with_strides_of(const at::Tensor& tangent, const ir::TensorType& type) {
  const std::vector<int64_t> strides = type.static_strides();
  if (tangent.strides() == at::IntArrayRef(strides)) return tangent;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty_strided(tangent.sizes(), strides, tangent.options()).copy_(tangent);
}

}  // namespace

void CallNode::save(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs,
                    std::span<const at::Tensor> results) {
  const CallPlan& plan = entry_->plan();
  values_.resize(plan.saved.size());
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const SavedSlot& slot = plan.saved[i];
    if (slot.input >= 0) {
      inputs_.emplace_back(inputs[static_cast<size_t>(slot.input)], /*is_output=*/false);
      continue;
    }
    values_[i] = std::move(outputs[static_cast<size_t>(plan.first_saved) + i]);
    if (slot.output >= 0) {
      // The result points to this node: keep its data, not the result itself, or neither would ever
      // die.
      values_[i] = values_[i].tensor_data();
      results_.emplace_back(results[static_cast<size_t>(slot.output)], /*is_output=*/true);
    }
  }
}

std::vector<at::Tensor> CallNode::take_saved(bool keep) {
  std::lock_guard lock(mutex_);
  TORCH_CHECK(!released_, autograd::ERR_BACKWARD_TWICE);
  // Throws eager's own text if somebody has written a result that the backward reads.
  for (const autograd::SavedVariable& result : results_) result.unpack(getptr());
  const CallPlan& plan = entry_->plan();
  std::vector<at::Tensor> saved(plan.saved.size());
  size_t next_input = 0;
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    if (plan.saved[i].input >= 0) saved[i] = inputs_[next_input++].unpack();
  }
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    if (plan.saved[i].input < 0) saved[i] = keep ? values_[i] : std::move(values_[i]);
  }
  // Without a kept graph the kernels may free each value at its last use; there is no second
  // backward.
  if (!keep) released_ = true;
  return saved;
}

autograd::variable_list CallNode::apply(autograd::variable_list&& tangents) {
  const ir::Signature& signature = entry_->signature();
  if (c10::GradMode::is_enabled()) {
    TANDEM_UNSUPPORTED("call", "backward with create_graph=true through a compiled function",
                       "\n  remedy: compute the inner gradient inside the compiled function with "
                       "torch::autograd::grad(..., /*retain_graph=*/true, /*create_graph=*/true)");
  }
  std::vector<bool> defined;
  bool any = false;
  for (size_t i = 0; i < tangents.size(); ++i) {
    defined.push_back(tangents[i].defined());
    any |= tangents[i].defined();
    TORCH_CHECK(!tangents[i].defined() || signature.tangents[i].raises.empty(),
                signature.tangents[i].raises);
  }
  if (!any) return autograd::variable_list(num_outputs());

  std::vector<at::Tensor> inputs = take_saved(autograd::get_current_graph_task_keep_graph());
  for (size_t i = 0; i < tangents.size(); ++i) {
    inputs.push_back(defined[i] ? with_strides_of(tangents[i], *signature.tangents[i].type)
                                : at::Tensor());
  }
  tangents.clear();
  return entry_->backward().get(defined).run(inputs);
}

void CallNode::release_variables() {
  std::lock_guard lock(mutex_);
  released_ = true;
  inputs_.clear();
  results_.clear();
  values_.clear();
}

}  // namespace tandem::runtime
