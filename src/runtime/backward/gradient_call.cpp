#include "runtime/backward/gradient_call.h"

#include "ir/gradient_arguments.h"
#include "runtime/backward/call_node.h"
#include "runtime/backward/generator_states.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

/// A tensor that is passed for its history only. Nobody reads its data: one element serves as all
/// of them.
at::Tensor tensor_with(const autograd::Edge& history, const ir::TensorType& type) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(type.dtype).device(type.device))
                          .expand(type.static_sizes());
  if (history.is_valid()) autograd::impl::set_gradient_edge(tensor, history);
  return tensor;
}

/// An argument with the history that it had when the call began. It has another one by now if it is
/// a view whose version the call has moved.
at::Tensor argument_as_found(const EntryState& entry, size_t part, size_t input,
                             const at::Tensor& argument, const autograd::edge_list& edges) {
  const ir::InputFacts& facts = entry.signature().inputs[input];
  const ir::History history{ir::CallTensor::input(static_cast<int64_t>(input))};
  const auto& way = entry.plan().parts[part].edges;
  const auto leads_there = [&](size_t k) {
    return entry.signature().gradients[static_cast<size_t>(way[k].position)].of == history &&
           edges[k].is_valid();
  };
  // The call has switched it off.
  if (facts.is_leaf && facts.requires_grad && !argument.requires_grad()) {
    at::Tensor leaf = argument;
    leaf.set_requires_grad(true);
    using Weak = decltype(autograd::AutogradMeta::grad_accumulator_);
    for (size_t k = 0; k < way.size(); ++k) {
      if (leads_there(k)) autograd::impl::set_grad_accumulator(leaf, Weak(edges[k].function));
    }
    return leaf;
  }
  // If the call writes the input, `argument` is a copy with the history of that time.
  if (facts.histories == 1 || facts.group >= 0 || facts.data_written || facts.history_changed ||
      facts.metadata_changed) {
    return argument;
  }
  for (size_t k = 0; k < way.size(); ++k) {
    if (leads_there(k) && edges[k] != autograd::impl::gradient_edge(argument)) {
      return with_history(argument.variable_data(), edges[k], argument.is_view());
    }
  }
  return argument;
}

ir::GradientArguments<at::Tensor> arguments_of(const EntryState& entry, size_t part,
                                               const Primals& primals,
                                               std::span<const at::Tensor> tangents,
                                               const NodePtr& node) {
  const auto& inputs = entry.signature().inputs;
  ir::GradientArguments<at::Tensor> named;
  named.arguments.resize(entry.argument_count());
  const auto argument = [&](size_t input) -> at::Tensor& {
    return named.arguments[static_cast<size_t>(inputs[input].role.index)];
  };
  for (size_t i = entry.lifted().size(); i < inputs.size(); ++i) {
    const int64_t same = inputs[i].duplicate_of;
    argument(i) = same >= static_cast<int64_t>(entry.lifted().size())
                      ? argument(static_cast<size_t>(same))
                      : argument_as_found(entry, part, i, primals.inputs[i], node->next_edges());
  }
  for (size_t i : replaced_lifted(entry, primals.exchanged))
    named.replaced.push_back(primals.inputs[i]);
  named.exchanged = primals.by_now;
  for (const CallPlan::PassedHistory& one : entry.plan().parts[part].passed) {
    named.histories.push_back(
        tensor_with(static_cast<CallNode&>(*node).edge_of(one), entry.signature().type_of(one.of)));
  }
  named.states = primals.states;
  for (const at::Tensor& tangent : tangents) {
    if (tangent.defined()) named.tangents.push_back(tangent);
  }
  return named;
}

}  // namespace

std::vector<at::Tensor> call_gradients(const EntryState& entry, size_t part,
                                       const partition::Asked& asked, const Primals& primals,
                                       std::span<const at::Tensor> tangents, const NodePtr& node) {
  const auto function =
      entry.gradients().get(entry, {.part = part, .asked = asked, .exchanged = primals.exchanged});
  detail::Flat arguments;
  arguments.constants.assign(entry.argument_constants().begin(), entry.argument_constants().end());
  const std::vector<at::Tensor> tensors =
      ir::pack(arguments_of(entry, part, primals, tangents, node));
  arguments.tensors.assign(tensors.begin(), tensors.end());
  if (primals.states.empty()) {
    const detail::Flat results = function->call(arguments);
    return {results.tensors.begin(), results.tensors.end()};
  }
  // The call sets the generators back and then forward again; an error in between must not leave
  // them there.
  const GeneratorStates before(entry.split().forward);
  try {
    const detail::Flat results = function->call(arguments);
    return {results.tensors.begin(), results.tensors.end()};
  } catch (...) {
    before.restore();
    throw;
  }
}

}  // namespace tandem::runtime
