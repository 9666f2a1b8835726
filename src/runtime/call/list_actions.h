#pragma once

#include "runtime/call/call_plan.h"
#include "tandem/stages.h"

namespace tandem::runtime {

/// Appends what a call does to the actions of a plan whose targets and parts are known.
///
/// The order matters. A node's edges must be complete before anything points to it, and results
/// depend on inputs as the call leaves them: so rewritten inputs come first, each after those that
/// its history leads to, and the node of the results last.
void list_actions(const Split& split, CallPlan& plan);

}  // namespace tandem::runtime
