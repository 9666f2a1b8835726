#pragma once

#include "signature/read_signature.h"

#include <vector>

namespace tandem::signature {

/// What an input shows after the in-place views of the run, taken of its real tensor: a stand-in
/// that was written has the strides and the offset of new memory. Undefined if view ops do not
/// explain it.
at::Tensor reshaped_as_in_run(const tracing::Trace& trace, const tracing::StandIn& input);

/// For every output that shows memory of an input or of a base: the view ops between the two, as a
/// small graph that the call path replays on the real tensor. Settles which input, group or base
/// an output is replayed from.
void add_view_replays(const tracing::Trace& trace,
                      const std::vector<const tracing::StandIn*>& inputs, Reading& reading);

}  // namespace tandem::signature
