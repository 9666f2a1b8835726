#pragma once

#include "partition/keeping.h"
#include "partition/min_cut/cut_graph.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::partition {

/// What keeping an item for the backward costs.
struct KeepingWeight {
  int64_t bytes = 0;  // with a surcharge for distance; FlowNetwork::kInfinite: cannot be kept
  std::string_view reason{};  // why it cannot
};

/// By item: the cost of keeping it. Where nothing is fused, that is the bytes that stay alive
/// because of it; what the caller can see and eager would keep too costs nothing. Otherwise it is
/// the bytes of the memory that stays alive: all of it for a view of a part, none for a parameter.
/// They count twice if the value exists in a fused kernel only and would have to be written. They
/// count more the further away the backward is, so of equal values the nearest is kept.
std::vector<KeepingWeight> keeping_weights(const CutGraph& graph, const Keeping& keeping);

}  // namespace tandem::partition
