#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// Rows for tensors that come from outside of the trace, and for memory that host code fills.

/// Puts the stand-ins of inputs in place of what the function closes over.
std::any lift_operands(BoxedCall& call);

bool make_host_memory(BoxedCall& call);
/// Leaves the tensor that is resized.
std::any note_resized(BoxedCall& call);
void resize_host_memory(BoxedCall& call, std::any& left);

}  // namespace tandem::tracing
