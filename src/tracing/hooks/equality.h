#pragma once

#include "tracing/recording/recording.h"

#include <optional>

namespace tandem::tracing {

/// What `equal(a, b)` shall say to the function; nullopt: only data could tell, and the backward
/// has no way to check.
///
/// The same value, or the same pure ops on the same values: true. Other sizes: false. Two inputs
/// that nobody has written: compared now, and the outcome becomes a guard. Anything else: false,
/// with a check in the graph that raises if a call finds them equal.
std::optional<bool> answer_equal(Recording& recording, ir::ValueId a, ir::ValueId b);

}  // namespace tandem::tracing
