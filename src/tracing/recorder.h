#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace tandem::tracing {

/// Boxed fallback on the recording key: writes the call to the current recording and answers with
/// traced tensors. Comes below autograd and functionalization, so what it sees is functional.
void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace tandem::tracing
