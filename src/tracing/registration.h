#pragma once

namespace tandem::tracing {

/// Installs Tandem's dispatcher hooks, once per process, at the first trace. A UserError if the
/// process runs another libtorch than this library was built for, or if somebody else uses the same
/// dispatch keys.
void register_hooks();

}  // namespace tandem::tracing
