#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tandem::tracing {

/// An op of another library that is made of other ops only and was not marked as effectful: its
/// body is the user's code, and each op in it is lifted by itself.
bool is_users_composite(const c10::OperatorHandle& op);

/// An op that was marked as effectful and has no kernel but its body, which libtorch would run
/// while it is traced.
bool is_whole(const c10::OperatorHandle& op);

/// Records such an op as one call. An UnsupportedError if autograd would look into it.
void call_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Lets functionalization follow an op of another library that writes arguments: from the first
/// sight of it on, it is recorded as its functional form (ir/functional_form.h).
void follow_writes(const c10::OperatorHandle& op);

}  // namespace tandem::tracing
