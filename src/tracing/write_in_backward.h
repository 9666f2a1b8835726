#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::tracing {

/// `tandem::write_in_backward(Tensor input, Tensor data, int versions) -> ()`: a hook or custom
/// function of the backward gives an input new data, and moves its version counter by so much.
const c10::OperatorHandle& write_in_backward_op();

}  // namespace tandem::tracing
