#pragma once

#include "tracing/trace.h"

#include <vector>

namespace tandem::joint {

/// Groups that nobody writes need no base: their members become inputs of the graph like all
/// others. `written` are the groups to leave alone, as positions in Trace::groups().
void release_groups(tracing::Trace& trace, const std::vector<size_t>& written);

/// Whether the gradient of a member goes to the caller's view, and from there to the base by
/// itself.
bool is_view_member(const tracing::Trace& trace, const tracing::StandIn& stand_in);

}  // namespace tandem::joint
