#pragma once

#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <vector>

namespace tandem::signature {

/// Stand-ins in the order of the graph's inputs: lifted tensors, then arguments. As indices into
/// Trace::stand_ins().
std::vector<size_t> calling_order(const tracing::Trace& trace);

/// Reads off a finished run what the call does to every argument and result. Must come before any
/// gradient is computed: the backward would move version counters and functional storages. What a
/// call path cannot rebuild exactly yet is an UnsupportedError that names the input or output.
ir::Signature read_signature(tracing::Trace& trace);

}  // namespace tandem::signature
