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

/// By item. Where nothing is fused, just the bytes that stay alive because of it: none of what the
/// caller can see and eager would keep, too. Otherwise bytes are those of the memory
/// that stays alive: of all that a view shows a part of, none for a parameter. They count twice
/// where the value exists in a fused kernel only and would have to be written, and more the further
/// away the backward is: of equal values the nearest is kept.
std::vector<KeepingWeight> keeping_weights(const CutGraph& graph, const Keeping& keeping);

}  // namespace tandem::partition
