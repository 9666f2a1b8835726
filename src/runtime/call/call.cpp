#include "runtime/call/call.h"

#include "ops/memory/flat_memory.h"
#include "runtime/call/borrowed_tensors.h"
#include "runtime/call/run_actions.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <utility>

namespace tandem::runtime {
namespace {

void gather_inputs(const EntryState& entry, const detail::Flat& arguments,
                   BorrowedTensors& inputs) {
  inputs.push(entry.lifted());
  const auto& facts = entry.signature().inputs;
  for (size_t i = entry.lifted().size(); i < facts.size(); ++i) {
    inputs.push(arguments.tensors[static_cast<size_t>(facts[i].role.index)]);
  }
}

/// The bases of groups, which the caller owns, follow the function's inputs.
std::vector<at::Tensor> bases_of_groups(const ir::Signature& signature,
                                        std::span<const at::Tensor> inputs) {
  std::vector<at::Tensor> bases;
  for (const ir::GroupFacts& group : signature.groups) {
    std::vector<at::Tensor> members;
    for (int64_t member : group.members) members.push_back(inputs[static_cast<size_t>(member)]);
    bases.push_back(group.is_root ? ops::root_of(members[0]) : ops::flat_memory(members));
  }
  return bases;
}

/// Raises eager's own errors for inputs that the call is going to rewrite and that must not be
/// written in place: results of split, views of leaves, views made without grad. Before any effect.
void check_writable(const CallPlan& plan, std::span<const at::Tensor> inputs) {
  for (size_t i : plan.checked) {
    at::AutoGradMode grad_mode(true);
    torch::autograd::check_inplace(inputs[i], /*requires_grad=*/true);
  }
}

detail::Flat run(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments,
                 bool profiled) {
  const ir::Signature& signature = entry->signature();
  const CallPlan& plan = entry->plan();
  BorrowedTensors borrowed(signature.inputs.size() + signature.groups.size());
  gather_inputs(*entry, arguments, borrowed);
  check_writable(plan, borrowed.tensors());
  const std::vector<at::Tensor> groups = bases_of_groups(signature, borrowed.tensors());
  borrowed.push(groups);
  const std::span<at::Tensor> inputs = borrowed.tensors();
  std::unique_ptr<Snapshot> snapshot;  // few calls have one
  if (entry->takes_snapshot()) [[unlikely]]
    snapshot = std::make_unique<Snapshot>(
        take_snapshot(entry->primals(), signature, inputs, entry->keeps_copies()));
  std::vector<at::Tensor> outputs;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    if (entry->peak_meter().wants(PeakMeter::Half::Forward)) [[unlikely]] {
      outputs = entry->peak_meter().measure(PeakMeter::Half::Forward,
                                            [&] { return entry->forward().run(inputs); });
    } else if (profiled) [[unlikely]] {
      RECORD_FUNCTION("tandem::forward", c10::ArrayRef<const c10::IValue>{});
      outputs = entry->forward().run(inputs);
    } else {
      outputs = entry->forward().run(inputs);
    }
  }
  detail::Flat results;
  results.tensors.resize(signature.outputs.size());
  results.constants.assign(entry->result_constants().begin(), entry->result_constants().end());
  run_actions(entry,
              {.inputs = inputs,
               .outputs = outputs,
               .results = {results.tensors.data(), results.tensors.size()}},
              std::move(snapshot));
  return results;
}

}  // namespace

detail::Flat call(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) [[likely]]
    return run(entry, arguments, /*profiled=*/false);
  at::RecordFunction range(std::move(*callbacks));
  range.before("tandem::call");
  return run(entry, arguments, /*profiled=*/true);
}

}  // namespace tandem::runtime
