#pragma once

#include <string>

namespace tandem::tracing {

/// Installs Tandem's dispatcher hooks, once per process, at the first trace. A UserError if the
/// process runs another libtorch than this library was built for, or if somebody else uses the same
/// dispatch keys.
void register_hooks();

/// Calls of this op, `mylib::fill.out`, come by the table where libtorch follows writes, from
/// now on. Any thread.
void functionalize_op(const std::string& name);

}  // namespace tandem::tracing
