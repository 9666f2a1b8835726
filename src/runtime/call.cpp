#include "runtime/call.h"

#include "base/error.h"
#include "ops/libtorch_version.h"
#include "ops/view_replay.h"
#include "runtime/borrowed_tensors.h"
#include "runtime/call_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>

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

/// Values that the write-back would overwrite, or that are somebody else's memory, get memory of
/// their own.
void protect(const CallPlan& plan, std::vector<at::Tensor>& outputs) {
  const auto own = [&](size_t position) { outputs[position] = outputs[position].clone(); };
  for (const WriteBack& write : plan.write_backs) {
    if (write.copy) own(static_cast<size_t>(write.position));
  }
  for (const FreshResult& fresh : plan.fresh) {
    if (fresh.copy) own(static_cast<size_t>(fresh.position));
  }
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    if (plan.saved[i].copy) own(static_cast<size_t>(plan.first_saved) + i);
  }
}

/// Below the key that counts versions: the counter then moves by exactly what eager's would.
void write_back(const EntryState& entry, std::span<const at::Tensor> inputs,
                std::span<const at::Tensor> outputs) {
  for (const WriteBack& write : entry.plan().write_backs) {
    const at::Tensor& input = inputs[static_cast<size_t>(write.input)];
    input.copy_(outputs[static_cast<size_t>(write.position)]);
  }
  for (const VersionBump& bump : entry.plan().version_bumps) {
    const at::Tensor& input = inputs[static_cast<size_t>(bump.input)];
    if (input.is_inference()) continue;
    for (int64_t n = 0; n < bump.count; ++n) input.unsafeGetTensorImpl()->bump_version();
  }
}

void rebuild_aliases(const EntryState& entry, std::span<const at::Tensor> inputs,
                     std::span<at::Tensor> results) {
  const ir::Signature& signature = entry.signature();
  for (const ir::ViewReplay& replay : signature.replays) {
    // A view made without grad is a leaf, even if it says that it requires grad: its base does.
    std::vector<bool> grad_modes;
    for (const ir::Output& output : replay.graph.outputs()) {
      grad_modes.push_back(!signature.outputs[static_cast<size_t>(output.role.index)].is_leaf);
    }
    std::vector<at::Tensor> views =
        ops::replay_views(replay, inputs[static_cast<size_t>(replay.input)], grad_modes);
    for (size_t i = 0; i < views.size(); ++i) {
      results[static_cast<size_t>(replay.graph.outputs()[i].role.index)] = std::move(views[i]);
    }
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const ir::OutputFacts& facts = signature.outputs[i];
    if (facts.kind == ir::OutputKind::IsInput)
      results[i] = inputs[static_cast<size_t>(facts.source)];
    if (facts.kind == ir::OutputKind::SameAsOutput)
      results[i] = results[static_cast<size_t>(facts.source)];
  }
}

detail::Flat run(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments,
                 bool profiled) {
  const ir::Signature& signature = entry->signature();
  const CallPlan& plan = entry->plan();
  BorrowedTensors borrowed(signature.inputs.size());
  gather_inputs(*entry, arguments, borrowed);
  const std::span<at::Tensor> inputs = borrowed.tensors();
  std::vector<at::Tensor> outputs;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    if (profiled) [[unlikely]] {
      RECORD_FUNCTION("tandem::forward", c10::ArrayRef<const c10::IValue>{});
      outputs = entry->forward().run(inputs);
    } else {
      outputs = entry->forward().run(inputs);
    }
    protect(plan, outputs);
    write_back(*entry, inputs, outputs);
  }
  detail::Flat results;
  results.tensors.resize(signature.outputs.size());
  results.constants.assign(entry->result_constants().begin(), entry->result_constants().end());
  for (const FreshResult& fresh : plan.fresh) {
    results.tensors[static_cast<size_t>(fresh.output)] =
        std::move(outputs[static_cast<size_t>(fresh.position)]);
  }
  const std::span<at::Tensor> tensors(results.tensors.data(), results.tensors.size());
  if (signature.training) {
    auto node = libtorch::make_node<CallNode>(entry);
    node->connect_inputs(inputs);
    node->connect_results(tensors);
    node->save(inputs, outputs, tensors);
  }
  rebuild_aliases(*entry, inputs, tensors);
  return results;
}

}  // namespace

detail::Flat call(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments) {
  at::RecordFunction range(at::RecordScope::FUNCTION);
  if (!range.isActive()) [[likely]]
    return run(entry, arguments, /*profiled=*/false);
  range.before("tandem::call");
  return run(entry, arguments, /*profiled=*/true);
}

}  // namespace tandem::runtime
