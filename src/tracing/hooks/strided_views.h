#pragma once

#include "tracing/hooks/interception.h"

#include <any>

namespace tandem::tracing {

// What happens before calls of as_strided and its kin, which count from the start of the memory
// that a tensor lies in (rows of the table of interceptions).

/// An offset that is the operand's own is left out: a graph at another offset is then the same.
std::any leave_out_offset(BoxedCall& call);
/// The new value of an input that was written has memory of its own: the offset counts from there.
/// Refuses a view that shows more than the input.
std::any count_from_memory(BoxedCall& call);
/// Where the memory came in with an input, it is known how far it reaches: eager's error for a view
/// beyond it.
std::any check_reach(BoxedCall& call);
/// Refuses a write through a view several of whose elements lie at one place.
std::any refuse_overlap(BoxedCall& call);

}  // namespace tandem::tracing
