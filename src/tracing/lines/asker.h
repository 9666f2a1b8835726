#pragma once

#include "tracing/lines/stack_walk.h"

namespace tandem::tracing {

/// Whether code of the user has asked for what `entry` answers: nothing but libtorch's ways to ask
/// a tensor or a symbolic integer lies in between. Not so if libtorch wants to know for itself.
bool asked_by_user(const EntryFrame& entry);

}  // namespace tandem::tracing
