#pragma once

#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <vector>

namespace tandem::signature {

/// Throws an UnsupportedError for what the call path cannot do to an input: set_() together with
/// writes that autograd sees, writes to memory of a tensor that was met too late, use of `.grad()`,
/// tensors that exist only during the call.
void check_inputs(const tracing::Trace& trace, const ir::Signature& signature,
                  const std::vector<size_t>& order);

}  // namespace tandem::signature
