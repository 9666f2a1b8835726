#include "partition/min_cut/keeping_weights.h"

#include "partition/min_cut/flow_network.h"
#include "partition/min_cut/recompute_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace tandem::partition {
namespace {

int64_t with_surcharge(int64_t bytes, int32_t distance) {
  constexpr int32_t kMost = 100;
  static const auto kFactors = [] {
    std::array<double, kMost + 1> factors{};
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = std::pow(1.1, static_cast<double>(i));
    return factors;
  }();
  const double factor = kFactors[static_cast<size_t>(std::clamp(distance, 1, kMost))];
  return static_cast<int64_t>(std::floor(static_cast<double>(bytes) * factor));
}

KeepingWeight weight_of(const CutGraph& graph, const Keeping& keeping, Item item,
                        int32_t distance) {
  const ItemFacts& facts = graph[item];
  if (facts.value == ir::kNoValue) return {FlowNetwork::kInfinite, "it is no single value"};
  if (facts.is_number) return {FlowNetwork::kInfinite, "it is a number"};
  const ir::ValueId kept = keeping.value_to_keep(facts.value);
  const std::optional<Saved::How> how = keeping.how(kept);
  if (!how) return {FlowNetwork::kInfinite, "a copy of it would have other strides"};
  const int64_t memory = with_surcharge(graph[graph.of(facts.memory)].bytes, distance);
  switch (how->as) {
    case Saved::As::Copy:
      return {with_surcharge(graph[graph.of(kept)].bytes, distance)};
    case Saved::As::Input:
    case Saved::As::InputAsFound:
      return {keeping.is_lasting(kept) ? 0 : memory};
    default:
      return {is_materialised(graph, item) ? memory : 2 * memory};
  }
}

/// Every value is in memory anyway, so only what would stay longer counts. Of equals what the
/// forward computes wins over what it would have to take over from the backward.
KeepingWeight plain_weight_of(const CutGraph& graph, const Keeping& keeping, Item item) {
  const ItemFacts& facts = graph[item];
  const KeepingWeight weight = weight_of(graph, keeping, item, 0);
  if (weight.bytes == FlowNetwork::kInfinite) return weight;
  const ir::ValueId kept = keeping.value_to_keep(facts.value);
  const bool is_copy = keeping.how(kept)->as == Saved::As::Copy;
  const bool is_free =
      !is_copy && (!facts.in_backward || facts.is_view) && keeping.is_visible(facts.value);
  if (is_free) return {0};
  const int64_t bytes = graph[graph.of(is_copy ? kept : facts.memory)].bytes;
  constexpr int64_t kUnit = 1024;
  return {kUnit * bytes + (facts.in_backward ? 1 : 0)};
}

}  // namespace

std::vector<KeepingWeight> keeping_weights(const CutGraph& graph, const Keeping& keeping) {
  const std::vector<int32_t> distance = distance_from_backward(graph);
  std::vector<KeepingWeight> weights(static_cast<size_t>(graph.size()));
  for (Item item = 0; item < graph.size(); ++item) {
    if (graph.only_in_backward(item)) continue;
    if (!graph.fuses()) {
      weights[static_cast<size_t>(item)] = plain_weight_of(graph, keeping, item);
      continue;
    }
    weights[static_cast<size_t>(item)] =
        weight_of(graph, keeping, item, distance[static_cast<size_t>(item)]);
  }
  return weights;
}

}  // namespace tandem::partition
