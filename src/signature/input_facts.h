#pragma once

#include "tandem/ir/signature.h"
#include "tracing/trace.h"

namespace tandem::signature {

/// What the run did to one input. Positions inside the facts are those of stand-ins; the caller
/// turns them into positions among the inputs.
ir::InputFacts input_facts(const tracing::Trace& trace, const tracing::StandIn& stand_in);

/// The same for the base of a group; `members` are left to the caller.
ir::GroupFacts group_facts(const tracing::Trace& trace, const tracing::Group& group);

/// How many histories an input has by itself, writes that autograd sees left out.
int64_t histories_of(const tracing::StandIn& stand_in);

/// Whether the function made it another view in place: t_, squeeze_, as_strided_, ...
bool is_reshaped(const tracing::StandIn& stand_in);

/// Whether anybody wrote memory of the group. If not, its members are inputs like all others.
bool is_written(const tracing::Group& group);

}  // namespace tandem::signature
