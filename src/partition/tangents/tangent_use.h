#pragma once

#include "tandem/ir/graph.h"

#include <vector>

namespace tandem::partition {

/// For whom values are kept, if the results of a call are differentiated one by one.
struct TangentUse {
  /// [saved value][tangent]: gradients that depend on the tangent read the value.
  std::vector<std::vector<bool>> readers;
};

TangentUse tangent_use(const ir::Graph& backward);

}  // namespace tandem::partition
