#pragma once

#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <vector>

namespace tandem::signature {

/// For every output that is a view of an input: the view ops between the two, as a small graph that
/// the call path replays on the real input. `values` are the graph values of the outputs.
void add_view_replays(const tracing::Trace& trace, const std::vector<size_t>& order,
                      const std::vector<ir::ValueId>& values, ir::Signature& signature);

}  // namespace tandem::signature
