#pragma once

#include "tracing/recording.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tandem::tracing {

/// Before an in-place op writes a traced tensor: raises what eager's kernels would raise where
/// memory overlaps (a traced tensor has none that they could look at), and refuses a write through
/// a view whose base was reshaped in place since, which autograd could not follow here. Members of
/// a group are views of their base here, whatever kind of view they are outside: the real ones are
/// asked whether they may be written.
///
/// `first` is the place of the op's first operand on the stack.
void check_write(const Recording& recording, const c10::OperatorHandle& op,
                 const torch::jit::Stack& stack, size_t first);

}  // namespace tandem::tracing
