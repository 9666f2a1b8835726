#pragma once

#include "tandem/ir/graph.h"
#include "tandem/stages.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::partition {

/// The memory use of a graph: bytes while it runs, over the level before its first node.
struct MemoryUse {
  int64_t peak = 0;
  int64_t end = 0;  // after the last node: the results, less inputs that went
};

/// What sizes and last uses tell about running the nodes one by one in this order: a value takes
/// memory when it is computed and gives it back after its last reader, a view takes none, a
/// pointwise op takes over an operand that dies with it. Workspaces inside kernels do not show.
/// `released`: by input, the bytes that go with its last use.
MemoryUse memory_use(const ir::Graph& graph, std::span<const ir::NodeId> order,
                     std::span<const int64_t> released);

/// The nodes as they stand.
std::vector<ir::NodeId> order_of(const ir::Graph& graph);

/// By input of the backward: the bytes of saved values that nobody else holds.
std::vector<int64_t> released_bytes(const Split& split);

/// Puts the nodes of one half into an order with a lower peak, if it finds one: nodes that free
/// more than they take come as early as they can. Draws and effects keep their order; a graph that
/// writes to its inputs stays as it is.
void schedule_for_memory(ir::Graph& graph, std::span<const int64_t> released);

}  // namespace tandem::partition
