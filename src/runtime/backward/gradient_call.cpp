#include "runtime/backward/gradient_call.h"

#include "base/error.h"
#include "runtime/backward/call_node.h"
#include "runtime/backward/generator_states.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

const ir::TensorType& type_at(const ir::Signature& signature, const CallPlan::Target& target) {
  const auto index = static_cast<size_t>(target.place.index);
  switch (target.place.of) {
    case ir::Place::Of::Input: {
      const ir::InputFacts& facts = signature.inputs[index];
      return facts.type_after && target.after ? *facts.type_after : *facts.type;
    }
    case ir::Place::Of::Group:
      return *signature.groups[index].type;
    case ir::Place::Of::Base:
      return *signature.bases[index].type;
    case ir::Place::Of::Output:
      return *signature.outputs[index].type;
  }
  TANDEM_CHECK(false, "call", "no such place");
}

/// Nobody reads it: one element serves as all of them.
at::Tensor place_at(const autograd::Edge& edge, const ir::TensorType& type) {
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor tensor = at::empty({}, at::TensorOptions().dtype(type.dtype).device(type.device))
                          .expand(type.static_sizes());
  if (edge.is_valid()) autograd::impl::set_gradient_edge(tensor, edge);
  return tensor;
}

at::Tensor place_with_data(const autograd::Edge& edge, const at::Tensor& data) {
  at::Tensor tensor = data.variable_data();
  autograd::impl::set_gradient_edge(tensor, edge);
  return tensor;
}

/// The edge that an argument came with, if its history was made anew when its version moved, and
/// all reads came before.
std::optional<autograd::Edge> edge_left_behind(const EntryState& entry, size_t part, size_t input,
                                               const autograd::edge_list& edges) {
  const ir::InputFacts& facts = entry.signature().inputs[input];
  if (!facts.requires_grad || facts.is_leaf || facts.version_delta == 0 || facts.data_written ||
      facts.history_changed || facts.metadata_changed || facts.group >= 0) {
    return std::nullopt;
  }
  std::optional<autograd::Edge> found;
  const auto& way = entry.plan().parts[part].edges;
  for (size_t k = 0; k < way.size(); ++k) {
    const CallPlan::Target& target = entry.plan().targets[way[k].target];
    if (!(target.place == ir::Place{ir::Place::Of::Input, static_cast<int64_t>(input)})) continue;
    if (target.after) return std::nullopt;
    found = edges[k];
  }
  return found && found->is_valid() ? found : std::nullopt;
}

/// In the order that joint::Derivation describes.
detail::Flat arguments_of(const EntryState& entry, size_t part, const Primals& primals,
                          std::span<const at::Tensor> tangents, const NodePtr& node) {
  const autograd::edge_list& edges = node->next_edges();
  const auto& facts = entry.signature().inputs;
  const size_t lifted = entry.lifted().size();
  detail::Flat arguments;
  arguments.constants.assign(entry.argument_constants().begin(), entry.argument_constants().end());
  arguments.tensors.resize(entry.argument_count());
  for (size_t i = lifted; i < facts.size(); ++i) {
    const std::optional<autograd::Edge> left = edge_left_behind(entry, part, i, edges);
    arguments.tensors[static_cast<size_t>(facts[i].role.index)] =
        left ? place_with_data(*left, primals.inputs[i]) : primals.inputs[i];
  }
  for (size_t i : entry.replaced_lifted()) arguments.tensors.push_back(primals.inputs[i]);
  const auto& way = entry.plan().parts[part].edges;
  for (const CallPlan::Part::Edge& edge : edges_beyond(entry, part)) {
    const auto slot = std::ranges::find(way, edge.position, &CallPlan::Part::Edge::position);
    arguments.tensors.push_back(
        place_at(edges[static_cast<size_t>(slot - way.begin())],
                 type_at(entry.signature(), entry.plan().targets[edge.target])));
  }
  const std::vector<size_t>& roots = entry.plan().parts[part].tangents;
  const std::vector<autograd::Edge> views = static_cast<CallNode&>(*node).views();
  for (size_t slot = 0; slot < roots.size(); ++slot) {
    const ir::TangentFacts& root = entry.signature().tangents[roots[slot]];
    // Of an input that is a view the node is not the history itself, but lies behind it.
    const bool behind =
        root.place.of == ir::Place::Of::Input && views.size() == 1 && views[0].is_valid();
    arguments.tensors.push_back(place_at(
        behind ? views[0] : autograd::Edge(node, static_cast<uint32_t>(slot)), *root.type));
  }
  const std::vector<size_t> members = views_of(entry.signature(), entry.plan(), part);
  for (size_t k = 0; k < members.size(); ++k)
    arguments.tensors.push_back(place_at(views[k], *facts[members[k]].type));
  arguments.tensors.append(primals.states.begin(), primals.states.end());
  for (const at::Tensor& tangent : tangents) {
    if (tangent.defined()) arguments.tensors.push_back(tangent);
  }
  return arguments;
}

}  // namespace

std::vector<CallPlan::Part::Edge> edges_beyond(const EntryState& entry, size_t part) {
  std::vector<CallPlan::Part::Edge> beyond;
  for (size_t i = 0; i < entry.signature().gradients.size(); ++i) {
    const ir::GradientFacts& gradient = entry.signature().gradients[i];
    if (gradient.part != static_cast<int64_t>(part)) continue;
    const bool as_found =
        !gradient.after &&
        (gradient.place.of == ir::Place::Of::Group ||
         (gradient.place.of == ir::Place::Of::Input &&
          entry.signature().inputs[static_cast<size_t>(gradient.place.index)].requires_grad));
    if (as_found) continue;
    const auto& edges = entry.plan().parts[part].edges;
    beyond.push_back(
        *std::ranges::find(edges, static_cast<int64_t>(i), &CallPlan::Part::Edge::position));
  }
  return beyond;
}

std::vector<size_t> views_of(const ir::Signature& signature, const CallPlan& plan, size_t part) {
  std::vector<size_t> views;
  for (size_t tangent : plan.parts[part].tangents) {
    const ir::Place& place = signature.tangents[tangent].place;
    if (place.of != ir::Place::Of::Group) continue;
    const ir::GroupFacts& group = signature.groups[static_cast<size_t>(place.index)];
    if (!group.is_root) continue;
    for (int64_t member : group.members) {
      const ir::InputFacts& facts = signature.inputs[static_cast<size_t>(member)];
      if (facts.duplicate_of < 0 && facts.requires_grad && facts.requires_grad_after &&
          !facts.metadata_changed)
        views.push_back(static_cast<size_t>(member));
    }
  }
  return views;
}

std::vector<at::Tensor> call_gradients(const EntryState& entry, size_t part,
                                       const std::vector<bool>& defined, const Primals& primals,
                                       std::span<const at::Tensor> tangents, const NodePtr& node) {
  const auto function = entry.gradients().get(entry, part, defined);
  const detail::Flat arguments = arguments_of(entry, part, primals, tangents, node);
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
