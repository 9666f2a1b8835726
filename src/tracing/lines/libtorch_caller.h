#pragma once

#include "tracing/lines/stack_walk.h"

#include <string>

namespace tandem::tracing {

/// The function of libtorch that uses gradients on its own account and has come to `entry` without
/// code of the user in between.
struct GradientUser {
  /// It steps an optimizer or clears gradients: `torch::optim::SGD::step`. Else empty.
  std::string optimizer{};
  /// It gives a tensor that a custom function has marked as dirty its new history, and takes away
  /// its gradient.
  bool marks_dirty = false;
};
GradientUser gradient_user(const EntryFrame& entry);

}  // namespace tandem::tracing
