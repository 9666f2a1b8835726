#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace tandem::tracing {

/// Boxed fallback on the lifting key, above autograd: swaps every real tensor among the operands
/// for its stand-in, so that whatever the function closes over becomes an input of the graph.
void lift_arguments(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack);

}  // namespace tandem::tracing
