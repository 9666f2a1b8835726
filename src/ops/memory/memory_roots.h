#pragma once

#include "tandem/ir/graph.h"

#include <vector>

namespace tandem::ops {

/// For every value of a graph, the value whose memory it shows: itself, or what it is a chain of
/// views of. Indexed by ValueId.
std::vector<ir::ValueId> memory_roots(const ir::Graph& graph);

}  // namespace tandem::ops
