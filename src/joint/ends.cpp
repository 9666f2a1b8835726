#include "joint/ends.h"

#include "joint/release_groups.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;
using ir::Place;
using tracing::StandIn;

autograd::Edge edge_now(const at::Tensor& tensor) { return autograd::impl::gradient_edge(tensor); }

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

Ends::Ends(const tracing::Trace& trace, const signature::Reading& reading)
    : trace_(trace), reading_(reading), order_(signature::calling_order(trace)) {
  add_roots();
  add_targets();
  set_apart_dead_ends();
}

void Ends::add_root(Place place, const at::Tensor& of, int64_t part) {
  roots_.push_back({place, part, of, edge_now(of)});
}

void Ends::add_roots() {
  const ir::Signature& signature = reading_.signature;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const ir::OutputFacts& facts = signature.outputs[i];
    const bool own = facts.kind == ir::OutputKind::Fresh || facts.own_history;
    if (!own || !facts.requires_grad || facts.is_leaf) continue;
    add_root({Place::Of::Output, static_cast<int64_t>(i)}, trace_.results().tensors[i], 0);
  }
  for (size_t i = 0; i < signature.bases.size(); ++i) {
    if (!reading_.bases[i].tensor.defined()) continue;
    add_root({Place::Of::Base, static_cast<int64_t>(i)}, reading_.bases[i].tensor, 0);
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (signature.is_rewritten(i))
      add_root({Place::Of::Input, static_cast<int64_t>(i)}, input(i).tensor, parts_++);
  }
  for (size_t i = 0; i < signature.groups.size(); ++i) {
    if (signature.groups[i].history_changed)
      add_root({Place::Of::Group, static_cast<int64_t>(i)}, group(i).tensor, parts_++);
  }
}

void Ends::add_target(Place::Of of, size_t index, bool after, const autograd::Edge& edge,
                      bool cut) {
  // A view that says it requires grad, since its base has come to: no gradient ends at it.
  if (!edge.is_valid()) return;
  Target& target = targets_.emplace_back();
  target.place = {of, static_cast<int64_t>(index)};
  target.after = after;
  target.edge = edge;
  if (cut) target.cut.emplace(edge);
}

void Ends::add_targets() {
  const ir::Signature& signature = reading_.signature;
  for (size_t i = 0; i < order_.size(); ++i) {
    const StandIn& one = input(i);
    const ir::InputFacts& facts = signature.inputs[i];
    if (facts.duplicate_of >= 0 || signature.is_view_of_group(i)) continue;
    if (one.edge.is_valid()) {
      const bool view = is_view_member(trace_, one);
      add_target(Place::Of::Input, i, false, one.edge, view || one.is_place);
      // A view renews its grad_fn when the version of its base moves: uses before and after then
      // end at two places.
      if (view && reading_.effects == signature::Effects::Kept && !facts.history_changed &&
          facts.requires_grad_after && !(edge_now(one.tensor) == one.edge)) {
        add_target(Place::Of::Input, i, true, edge_now(one.tensor), true);
      }
      add_renewed(one, i);
    } else if (facts.requires_grad_after && facts.is_leaf_after) {
      add_target(Place::Of::Input, i, false, edge_now(one.tensor),
                 false);  // requires_grad_() inside
    }
  }
  for (size_t i = 0; i < signature.groups.size(); ++i) {
    if (group(i).edge.is_valid()) add_target(Place::Of::Group, i, false, group(i).edge, false);
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (signature.outputs[i].made_leaf)
      add_target(Place::Of::Output, i, false, edge_now(trace_.results().tensors[i]), false);
  }
  if (reading_.effects == signature::Effects::Dropped) return;
  for (size_t i = 0; i < order_.size(); ++i) {
    const ir::InputFacts& facts = signature.inputs[i];
    if (facts.duplicate_of >= 0) continue;
    const bool view = signature.is_view_of_group(i) && is_view_member(trace_, input(i));
    const bool rewritten = facts.history_changed && !signature.is_view_of_group(i);
    if ((view && facts.requires_grad_after) || rewritten)
      add_target(Place::Of::Input, i, true, edge_now(input(i).tensor), true);
  }
  for (size_t i = 0; i < signature.groups.size(); ++i) {
    if (signature.groups[i].history_changed)
      add_target(Place::Of::Group, i, true, edge_now(group(i).tensor), true);
  }
}

/// Reads before the last renewal end at places that nobody can name any more, like those before the
/// first.
void Ends::add_renewed(const StandIn& one, size_t index) {
  const bool kept = reading_.effects == signature::Effects::Kept;
  for (size_t k = 0; k < one.renewed.size(); ++k) {
    const autograd::Edge& edge = one.renewed[k];
    const bool is_taken = std::ranges::any_of(trace_.stand_ins(), [&](const StandIn& other) {
      return other.is_place && other.edge == edge;
    });
    if (is_taken) continue;
    const bool after =
        kept && k + 1 == one.renewed.size() && !reading_.signature.inputs[index].history_changed;
    add_target(Place::Of::Input, index, after, edge, false);
  }
}

/// Results whose history ends inside, at a leaf that the function made and dropped. Were they
/// results of the call's node, autograd would come through them on its way to the inputs, and run
/// what the caller has done with them, which eager does not.
void Ends::set_apart_dead_ends() {
  if (std::ranges::none_of(roots_, [](const Root& root) { return root.part == 0; })) return;
  const std::unordered_set<autograd::Node*> between = nodes_between(roots_, targets_);
  for (Root& root : roots_) {
    if (root.part == 0 && !between.contains(root.edge.function.get())) root.part = -1;
  }
}

std::vector<const Target*> Ends::prepare(int64_t part) {
  std::vector<const Target*> wanted;
  for (const Target& target : targets_) {
    bool own = false;
    for (const Root& root : roots_)
      own = own || (part > 0 && root.part == part && target.after && target.place == root.place);
    if (target.cut) own ? target.cut->open() : target.cut->close();
    if (!own) wanted.push_back(&target);
  }
  return wanted;
}

}  // namespace tandem::joint
