#include "joint/gradients/endpoints.h"

#include "base/error.h"
#include "joint/gradients/release_groups.h"
#include "signature/input_facts.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;
using ir::CallTensor;
using ir::History;
using tracing::StandIn;

/// The nodes between the roots and the targets, which are what the engine runs.
std::unordered_set<autograd::Node*> nodes_between(const std::vector<Root>& roots,
                                                  const std::deque<Target>& targets) {
  std::unordered_map<autograd::Node*, std::vector<autograd::Node*>> parents;
  std::vector<autograd::Node*> open;
  for (const Root& root : roots) {
    if (parents.try_emplace(root.edge.function.get()).second)
      open.push_back(root.edge.function.get());
  }
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    for (const autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      const auto [at, is_new] = parents.try_emplace(edge.function.get());
      at->second.push_back(node);
      if (is_new) open.push_back(at->first);
    }
  }
  std::unordered_set<autograd::Node*> between;
  for (const Target& target : targets) {
    autograd::Node* node = target.edge.function.get();
    if (parents.contains(node) && between.insert(node).second) open.push_back(node);
  }
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    for (autograd::Node* parent : parents.at(node)) {
      if (between.insert(parent).second) open.push_back(parent);
    }
  }
  return between;
}

}  // namespace

Endpoints::Endpoints(const tracing::Trace& trace, const signature::Reading& reading)
    : trace_(trace), reading_(reading), order_(signature::calling_order(trace)) {
  add_roots();
  add_targets();
  set_apart_dead_ends();
}

const at::Tensor& Endpoints::tensor_of(const CallTensor& of) const {
  const auto index = static_cast<size_t>(of.index);
  switch (of.kind) {
    case CallTensor::Kind::Input:
      return input(index).tensor;
    case CallTensor::Kind::Group:
      return group(index).tensor;
    case CallTensor::Kind::Base:
      return reading_.bases[index].tensor;
    case CallTensor::Kind::Output:
      return trace_.results().tensors[index];
  }
  TANDEM_CHECK(false, "joint", "no such tensor");
}

autograd::Edge Endpoints::edge_of(const History& history) const {
  const auto index = static_cast<size_t>(history.tensor.index);
  const auto number = static_cast<size_t>(history.number);
  if (history.tensor.is_input() && number < input(index).histories.size())
    return input(index).histories[number];
  if (history.tensor.is_group() && number == 0) return group(index).edge;
  const at::Tensor& tensor = tensor_of(history.tensor);
  return tensor.defined() ? autograd::impl::gradient_edge(tensor) : autograd::Edge();
}

void Endpoints::add_root(const CallTensor& of, const at::Tensor& tensor, int64_t part) {
  const History last = reading_.signature.last_history(of);
  roots_.push_back({last, part, tensor, edge_of(last)});
}

void Endpoints::add_roots() {
  const ir::Signature& signature = reading_.signature;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const ir::OutputFacts& facts = signature.outputs[i];
    const bool own = facts.kind == ir::OutputKind::Fresh || facts.own_history;
    if (!own || !facts.requires_grad || facts.is_leaf) continue;
    add_root(CallTensor::output(static_cast<int64_t>(i)), trace_.results().tensors[i], 0);
  }
  for (size_t i = 0; i < signature.bases.size(); ++i) {
    if (!reading_.bases[i].tensor.defined()) continue;
    add_root(CallTensor::base(static_cast<int64_t>(i)), reading_.bases[i].tensor, 0);
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (signature.is_rewritten(i))
      add_root(CallTensor::input(static_cast<int64_t>(i)), input(i).tensor, parts_++);
  }
  for (size_t i = 0; i < signature.groups.size(); ++i) {
    if (signature.groups[i].history_changed)
      add_root(CallTensor::group(static_cast<int64_t>(i)), group(i).tensor, parts_++);
  }
}

void Endpoints::add_target(const History& of, bool stops) {
  const autograd::Edge edge = edge_of(of);
  // No gradient ends at a view that says it requires grad only because its base has come to.
  if (!edge.is_valid()) return;
  Target& target = targets_.emplace_back();
  target.of = of;
  target.edge = edge;
  if (stops) target.stop.emplace(edge);
}

/// Whether another argument is passed for this history of an input, as a history of its own.
bool Endpoints::is_passed_apart(const autograd::Edge& edge, const StandIn& one) const {
  return std::ranges::any_of(trace_.stand_ins(), [&](const StandIn& other) {
    return other.history_only && &other != &one && other.histories.front() == edge;
  });
}

void Endpoints::add_targets() {
  const ir::Signature& signature = reading_.signature;
  const bool kept = reading_.effects == signature::Effects::Kept;
  for (size_t i = 0; i < order_.size(); ++i) {
    const StandIn& one = input(i);
    const ir::InputFacts& facts = signature.inputs[i];
    if (facts.duplicate_of >= 0 || (signature.is_view_of_group(i) && !one.apart)) continue;
    const CallTensor of = CallTensor::input(static_cast<int64_t>(i));
    const bool view = is_view_member(trace_, one) && !one.apart;
    for (size_t k = 0; k < one.histories.size(); ++k) {
      if (k > 0 && is_passed_apart(one.histories[k], one)) continue;
      add_target({of, static_cast<int64_t>(k)}, k == 0 && (view || one.history_only));
    }
    const bool made_leaf = facts.requires_grad_after && facts.is_leaf_after;
    if (one.histories.empty() && made_leaf) add_target({of, 0}, false);
    // If the memory of a view was written, reads before and after the write end at two histories.
    if (kept && view && !facts.history_changed) add_last_target(i);
  }
  for (size_t i = 0; i < signature.groups.size(); ++i)
    add_target({CallTensor::group(static_cast<int64_t>(i)), 0}, false);
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (signature.outputs[i].made_leaf)
      add_target({CallTensor::output(static_cast<int64_t>(i)), 0}, false);
  }
  if (!kept) return;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (signature.inputs[i].duplicate_of >= 0) continue;
    if (signature.is_view_of_group(i) ? is_view_member(trace_, input(i))
                                      : signature.inputs[i].history_changed)
      add_last_target(i);
  }
  for (size_t i = 0; i < signature.groups.size(); ++i) {
    if (signature.groups[i].history_changed)
      add_target(signature.last_history(CallTensor::group(static_cast<int64_t>(i))), true);
  }
}

/// The history with which the call leaves an input, if it is one that writes have made.
void Endpoints::add_last_target(size_t index) {
  const History last =
      reading_.signature.last_history(CallTensor::input(static_cast<int64_t>(index)));
  if (last.number >= signature::histories_of(input(index))) add_target(last, true);
}

/// Sets apart results whose history ends inside, at a leaf that the function made and dropped. As
/// results of the call's node they would be on autograd's way to the inputs. It would run the
/// backward of what the caller has computed from them, which eager does not.
void Endpoints::set_apart_dead_ends() {
  if (std::ranges::none_of(roots_, [](const Root& root) { return root.part == 0; })) return;
  const std::unordered_set<autograd::Node*> between = nodes_between(roots_, targets_);
  for (Root& root : roots_) {
    if (root.part == 0 && !between.contains(root.edge.function.get())) root.part = -1;
  }
}

std::vector<const Target*> Endpoints::prepare(int64_t part) {
  std::vector<const Target*> wanted;
  for (const Target& target : targets_) {
    bool own = false;
    for (const Root& root : roots_)
      own = own || (part > 0 && root.part == part && target.of == root.of);
    if (target.stop) own ? target.stop->open() : target.stop->close();
    if (!own) wanted.push_back(&target);
  }
  return wanted;
}

}  // namespace tandem::joint
