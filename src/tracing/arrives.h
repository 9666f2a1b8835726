#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::tracing {

/// `tandem::arrives(gradient, tangents)`: the gradient, which is there whenever one of the tangents
/// is defined. The partition takes it out when it knows which are.
const c10::OperatorHandle& arrives_op();

}  // namespace tandem::tracing
