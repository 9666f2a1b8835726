#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// Rows for ops of other libraries.

/// No kernel but a body of other ops.
bool has_only_a_body(const c10::OperatorHandle& op);
/// The same, of another library.
bool is_users_composite(const c10::OperatorHandle& op);
/// Runs the body, unless the op is marked as effectful.
bool run_body(BoxedCall& call);
/// Records an op that is marked as effectful as one call. An UnsupportedError if autograd would
/// look into it.
bool call_whole(BoxedCall& call);

bool writes_users_arguments(const c10::OperatorHandle& op);
/// From the first sight of the op on, functionalization hands it to call_functional_form.
std::any follow_writes(BoxedCall& call);
/// Calls the functional form of the op (ir/functional_form.h) and writes what it gives. False if
/// there is none, or no trace.
bool call_functional_form(BoxedCall& call);

}  // namespace tandem::tracing
