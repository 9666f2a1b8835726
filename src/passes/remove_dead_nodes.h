#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Whether a node may go when nobody reads its results, with all that is inside it: no draw, effect
/// or write.
bool removable(const ir::Node& node);

/// Erases every node whose results nobody reads and whose op has no effect.
///
/// Expects a functional graph: in a mutating one, "nobody reads the result" does not mean dead.
/// Keeps the outputs, their order, every effect (random draws, writes, host calls), and what may
/// raise.
PassResult remove_dead_nodes(ir::Graph& graph);

}  // namespace tandem::passes
