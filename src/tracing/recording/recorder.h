#pragma once

#include "tandem/ir/graph.h"
#include "tracing/recording/boxed_call.h"

#include <vector>

namespace tandem::tracing {

/// Operands of a node: values of traced tensors; real tensors become constants of the graph.
std::vector<ir::Operand> operands_of(Recording& recording, const c10::OperatorHandle& op,
                                     c10::ArrayRef<c10::IValue> args);

/// Writes the call to its recording, as a call of `op`, which takes the same operands. The results
/// are traced tensors.
void record_call(BoxedCall& call, const c10::OperatorHandle& op);

}  // namespace tandem::tracing
