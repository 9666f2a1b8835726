#pragma once

#include "tracing/lines/stack_walk.h"

#include <string>

namespace tandem::tracing {

/// The function of libtorch that steps an optimizer or clears gradients, `torch::optim::SGD::step`,
/// and that has come to `entry` without code of the user in between. Empty: there is none.
std::string optimizer_function(const EntryFrame& entry);

}  // namespace tandem::tracing
