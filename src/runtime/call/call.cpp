#include "runtime/call/call.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/memory/flat_memory.h"
#include "ops/memory/view_replay.h"
#include "runtime/backward/call_node.h"
#include "runtime/call/borrowed_tensors.h"
#include "runtime/call/epilogue.h"
#include "runtime/call/write_back.h"

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

/// The bases of groups, which the caller owns, follow the function's inputs.
void gather_groups(const EntryState& entry, std::span<const at::Tensor> inputs,
                   std::vector<at::Tensor>& bases) {
  for (const ir::GroupFacts& group : entry.signature().groups) {
    std::vector<at::Tensor> members;
    for (int64_t member : group.members) members.push_back(inputs[static_cast<size_t>(member)]);
    bases.push_back(group.is_root ? ops::root_of(members[0]) : ops::flat_memory(members));
  }
}

at::Tensor source_of(const ir::ViewReplay& replay, std::span<const at::Tensor> inputs) {
  const at::Tensor& input = inputs[static_cast<size_t>(replay.source.index)];
  return replay.detached ? input.variable_data() : input;
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
        ops::replay_views(replay, source_of(replay, inputs), grad_modes);
    for (size_t i = 0; i < views.size(); ++i) {
      results[static_cast<size_t>(replay.graph.outputs()[i].role.index)] = std::move(views[i]);
    }
  }
}

/// Results that are a tensor which exists already.
void place_same_tensors(const ir::Signature& signature, std::span<const at::Tensor> inputs,
                        std::span<at::Tensor> results) {
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const ir::OutputFacts& facts = signature.outputs[i];
    if (facts.kind == ir::OutputKind::IsInput)
      results[i] = inputs[static_cast<size_t>(facts.source)];
    if (facts.kind == ir::OutputKind::SameAsOutput)
      results[i] = results[static_cast<size_t>(facts.source)];
  }
}

/// The end of a call that has no more to it than fresh results and views of inputs.
void finish_plainly(const std::shared_ptr<const EntryState>& entry,
                    std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs,
                    std::span<at::Tensor> results, std::optional<Snapshot> snapshot) {
  if (entry->plan().writes) write_back(entry->plan(), inputs, outputs);
  for (const FreshResult& fresh : entry->plan().fresh) {
    results[static_cast<size_t>(fresh.output)] =
        std::move(outputs[static_cast<size_t>(fresh.position)]);
  }
  if (entry->signature().training) {
    auto node = libtorch::make_node<CallNode>(entry);
    node->connect_inputs(inputs);
    node->connect_results(results);
    if (snapshot) node->kept().keep(*std::move(snapshot));
    node->kept().save(*entry, inputs, outputs, results);
  }
  rebuild_aliases(*entry, inputs, results);
}

detail::Flat run(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments,
                 bool profiled) {
  const ir::Signature& signature = entry->signature();
  const CallPlan& plan = entry->plan();
  BorrowedTensors borrowed(signature.inputs.size() + signature.groups.size());
  gather_inputs(*entry, arguments, borrowed);
  std::vector<at::Tensor> groups;
  if (!plan.is_plain) {
    check_rewrites(*entry, borrowed.tensors());
    gather_groups(*entry, borrowed.tensors(), groups);
    borrowed.push(groups);
  }
  const std::span<at::Tensor> inputs = borrowed.tensors();
  std::optional<Snapshot> snapshot;
  if (entry->takes_snapshot()) [[unlikely]]
    snapshot = take_snapshot(entry->primals(), signature, inputs, entry->keeps_copies());
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
    if (plan.needs_protection) protect(plan, outputs);
  }
  detail::Flat results;
  results.tensors.resize(signature.outputs.size());
  results.constants.assign(entry->result_constants().begin(), entry->result_constants().end());
  const std::span<at::Tensor> tensors(results.tensors.data(), results.tensors.size());
  if (plan.is_plain) [[likely]] {
    finish_plainly(entry, inputs, outputs, tensors, std::move(snapshot));
  } else {
    Epilogue(entry, inputs, outputs, tensors, std::move(snapshot)).run();
  }
  place_same_tensors(signature, inputs, tensors);
  // Last: what is left to do for the call does not depend on it, the caller does.
  if (!plan.is_plain && signature.grad_mode_after)
    c10::GradMode::set_enabled(*signature.grad_mode_after);
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
