#pragma once

#include "conformance/observe.h"

namespace tandem::conformance {

/// Gradients of gradients: calls, differentiates each result with create_graph, and what comes of
/// it twice more. `calls` says how many calls that took: the first backward with create_graph
/// through a call that writes what its gradients need is refused, and the next call keeps a copy.
/// Given as a number above zero, it is the number of calls to make.
Observation observe_higher_order(const Program& program, const Call& call, int number,
                                 const Settings& settings, int& calls);

}  // namespace tandem::conformance
