#pragma once

#include "tandem/ir/graph.h"

#include <vector>

namespace tandem::partition {

/// What the backwards of a call's results have in common, if each result is differentiated by
/// itself, and which gradients they lead to.
struct TangentUse {
  /// [saved value][tangent]: gradients that depend on the tangent read the value.
  std::vector<std::vector<bool>> readers;
  /// [tangent][tangent]: one formula serves both and reads saved values. In eager that is one node,
  /// which a first backward frees for the second.
  std::vector<std::vector<bool>> shared;
  /// [gradient][tangent]: the gradient depends on the tangent.
  std::vector<std::vector<bool>> gradients;
};

TangentUse tangent_use(const ir::Graph& backward);

}  // namespace tandem::partition
