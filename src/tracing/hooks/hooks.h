#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <string>

namespace tandem::tracing {

// What libtorch calls in place of its kernels while a trace runs. Each takes a call past the rows
// of the table (interception.h) that belong to its place.

/// Boxed fallback on the lifting key, above autograd: every call that the function, or autograd on
/// its behalf, makes comes by here first.
void lift(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Boxed kernel on the functionalization key, of the ops that have rows there.
void functionalize(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack);

/// Boxed fallback on the recording key: writes the call to the current recording and answers with
/// traced tensors. Comes below autograd and functionalization, so what it sees is functional.
void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Installs Tandem's dispatcher hooks, once per process, at the first trace. A UserError if the
/// process runs another libtorch than this library was built for, or if somebody else uses the same
/// dispatch keys.
void register_hooks();

/// Calls of this op, `mylib::fill.out`, come by the table where libtorch follows writes, from
/// now on. Any thread.
void functionalize_op(const std::string& name);

}  // namespace tandem::tracing
