#pragma once

#include "tandem/ir/graph.h"

namespace tandem::ops {

/// Whether each number that a call is given is, but for rounding, one of every dtype of its
/// operands and results.
///
/// If not, libtorch's kernel raises or wraps, each in its own way: the call is left to it.
bool numbers_fit(const ir::Graph& graph, const ir::Node& node);

}  // namespace tandem::ops
