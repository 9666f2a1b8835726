#pragma once

#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <vector>

namespace tandem::signature {

/// Throws an UnsupportedError for what the call path cannot do to an input yet: changed metadata,
/// writes that autograd sees, switched requires_grad, writes to overlapping memory, use of
/// `.grad()`, tensors that exist only during the call.
void check_inputs(const tracing::Trace& trace, const ir::Signature& signature,
                  const std::vector<size_t>& order);

}  // namespace tandem::signature
