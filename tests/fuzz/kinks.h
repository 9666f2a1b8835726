#pragma once

#include "fuzz/chooser.h"

#include <functional>

namespace tandem::fuzz {

struct Aside {
  /// How far from its value a backend that rounds may have a tensor.
  std::function<double(const at::Tensor&)> distance{};
  bool second_order = false;  // gradients of gradients count
};

/// Whether rounding of what the op is given may decide its gradient, as at the bound of a clamp or
/// where two elements are the largest: tried out to either side.
bool is_at_kink(const Chooser& chooser, const Statement& statement,
                const Surroundings& surroundings, const Aside& aside);

}  // namespace tandem::fuzz
