#include "joint/gradients/backward_effects.h"

#include "ops/op_table.h"

#include <torch/csrc/autograd/function.h>

#include <unordered_set>

namespace tandem::joint {
namespace {

using Nodes = std::unordered_set<const torch::autograd::Node*>;

Nodes reachable_from(const torch::autograd::Edge& root) {
  Nodes found;
  std::vector<const torch::autograd::Node*> open{root.function.get()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !found.insert(node).second) continue;
    for (const torch::autograd::Edge& edge : node->next_edges())
      open.push_back(edge.function.get());
  }
  return found;
}

}  // namespace

std::vector<Reached> reached_effects(const tracing::Recording& recording, ir::NodeId last,
                                     std::span<const torch::autograd::Edge> roots) {
  std::vector<Reached> effects;
  std::vector<Nodes> reachable;
  for (const tracing::Recording::BackwardEffect& effect : recording.backward_effects()) {
    if (effect.node <= last || recording.graph().node(effect.node).erased()) continue;
    if (reachable.empty()) {
      for (const torch::autograd::Edge& root : roots) reachable.push_back(reachable_from(root));
    }
    Reached reached{.node = effect.node};
    // A hook belongs to no node that could be asked: whatever is differentiated runs it.
    for (const Nodes& nodes : reachable)
      reached.from.push_back(effect.in == nullptr || nodes.contains(effect.in));
    effects.push_back(std::move(reached));
  }
  return effects;
}

void BackwardEffects::add(std::span<const Reached> effects, std::span<const size_t> tangents) {
  for (const Reached& effect : effects) {
    std::vector<size_t>& known = tangents_[effect.node];
    for (size_t i = 0; i < effect.from.size(); ++i) {
      if (effect.from[i]) known.push_back(tangents[i]);
    }
  }
}

std::vector<ir::EffectFacts> BackwardEffects::in_order(const ir::Graph& graph,
                                                       size_t tangent_count) const {
  std::vector<ir::EffectFacts> facts;
  graph.for_each_node([&](const ir::Node& node) {
    if (node.phase() != ir::Phase::Backward || node.kind() != ir::NodeKind::Op ||
        !ops::info(node.op()).must_happen()) {
      return;
    }
    const auto found = tangents_.find(node.id());
    facts.push_back({std::vector<bool>(tangent_count, found == tangents_.end())});
    if (found == tangents_.end()) return;
    for (size_t tangent : found->second) facts.back().tangents[tangent] = true;
  });
  return facts;
}

}  // namespace tandem::joint
