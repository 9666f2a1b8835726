#pragma once

#include "tandem/ir/location.h"
#include "tracing/lines/loaded_objects.h"

#include <cstdint>
#include <span>

namespace tandem::tracing {

/// The innermost line of a chain of call sites that is the user's: not in a header of libtorch, of
/// Tandem or of the standard library. Without one the nearest symbol, and an empty line if there is
/// none.
ir::SourceLine users_line(const LoadedObjects& objects, std::span<const uintptr_t> chain);

}  // namespace tandem::tracing
