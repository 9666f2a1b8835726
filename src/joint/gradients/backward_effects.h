#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tracing/recording/recording.h"

#include <torch/csrc/autograd/edge.h>

#include <span>
#include <unordered_map>
#include <vector>

namespace tandem::joint {

/// A draw or an effect that the backward has recorded, and the roots from which autograd gets
/// there.
struct Reached {
  ir::NodeId node = ir::kNoNode;
  std::vector<bool> from{};  // by root
};

/// Of what the engine has recorded after `last`, run from these roots.
std::vector<Reached> reached_effects(const tracing::Recording& recording, ir::NodeId last,
                                     std::span<const torch::autograd::Edge> roots);

/// Collects them over all runs of the engine; `tangents` are the positions of the roots.
class BackwardEffects {
 public:
  void add(std::span<const Reached> effects, std::span<const size_t> tangents);
  /// In the order of the graph, by tangent of the call.
  std::vector<ir::EffectFacts> in_order(const ir::Graph& graph, size_t tangent_count) const;

 private:
  std::unordered_map<ir::NodeId, std::vector<size_t>> tangents_;
};

}  // namespace tandem::joint
