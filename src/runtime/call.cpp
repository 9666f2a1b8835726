#include "runtime/call.h"

#include "base/error.h"
#include "ops/libtorch_version.h"
#include "ops/view_replay.h"
#include "runtime/call_node.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

std::vector<at::Tensor> gather_inputs(const EntryState& entry, const detail::Flat& arguments) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(entry.signature().inputs.size());
  inputs.assign(entry.lifted().begin(), entry.lifted().end());
  for (size_t i = entry.lifted().size(); i < entry.signature().inputs.size(); ++i) {
    inputs.push_back(
        arguments.tensors[static_cast<size_t>(entry.signature().inputs[i].role.index)]);
  }
  return inputs;
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
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::InputFacts& facts = entry.signature().inputs[i];
    if (facts.duplicate_of >= 0 || inputs[i].is_inference()) continue;
    for (int64_t n = 0; n < facts.version_delta; ++n)
      inputs[i].unsafeGetTensorImpl()->bump_version();
  }
}

/// A node's edges must be complete before anything points to it.
void connect(const std::shared_ptr<const EntryState>& entry, std::span<const at::Tensor> inputs,
             std::span<at::Tensor> outputs, std::span<at::Tensor> results) {
  auto node = libtorch::make_node<CallNode>(entry);
  autograd::edge_list edges;
  for (int64_t input : entry->plan().differentiable_inputs) {
    edges.push_back(autograd::impl::gradient_edge(inputs[static_cast<size_t>(input)]));
  }
  node->set_next_edges(std::move(edges));
  for (const ir::TangentFacts& tangent : entry->signature().tangents) {
    at::Tensor& result = results[static_cast<size_t>(tangent.output)];
    const uint32_t number = node->add_input_metadata(result);
    autograd::impl::set_gradient_edge(result, autograd::Edge(node, number));
  }
  node->save(inputs, outputs, results);
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

}  // namespace

detail::Flat call(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments) {
  const ir::Signature& signature = entry->signature();
  const CallPlan& plan = entry->plan();
  std::vector<at::Tensor> inputs = gather_inputs(*entry, arguments);
  std::vector<at::Tensor> outputs;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    std::vector<at::Tensor> kernel_inputs = inputs;
    outputs = entry->forward().run(kernel_inputs);
    protect(plan, outputs);
    write_back(*entry, inputs, outputs);
  }
  detail::Flat results;
  results.tensors.resize(signature.outputs.size());
  results.constants.assign(entry->result_constants().begin(), entry->result_constants().end());
  for (const FreshResult& fresh : plan.fresh) {
    results.tensors[static_cast<size_t>(fresh.output)] =
        outputs[static_cast<size_t>(fresh.position)];
  }
  std::span<at::Tensor> tensors(results.tensors.data(), results.tensors.size());
  if (signature.training) connect(entry, inputs, outputs, tensors);
  rebuild_aliases(*entry, inputs, tensors);
  return results;
}

}  // namespace tandem::runtime
