#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

namespace tandem::partition {

/// Ends the forward with a `copy_` to each input whose data the call writes and autograd does not
/// see it, in place of an output with the new data. Nothing that can fail comes after the first of
/// them, and what still shows the old data (a result, a saved value) is copied before. Other inputs
/// are left to the call path.
void place_write_backs(ir::Graph& forward, const ir::Signature& signature);

/// Whether the write to an input can be part of the graph.
bool writes_in_graph(const ir::Signature& signature, size_t input);

}  // namespace tandem::partition
