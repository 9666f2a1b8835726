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

/// A view's history is made anew when its version moves: the edge that it came with is not the one
/// that it leaves with.
bool may_renew(const ir::InputFacts& input);

}  // namespace tandem::runtime
