#pragma once

#include "runtime/call/call_plan.h"

#include <vector>

namespace tandem::runtime {

/// Histories on which the gradients of one part depend and which no argument of the call has. The
/// function of the gradients takes a tensor for each: see joint::Derivation.
std::vector<CallPlan::PassedHistory> passed_histories(const ir::Signature& signature,
                                                      const CallPlan::Part& part);

}  // namespace tandem::runtime
