#pragma once

#include "ops/metadata/metadata.h"
#include "tandem/ir/graph.h"

#include <span>

namespace tandem::ops {

/// Whether each number that a call is given is, but for rounding, one of every dtype of its
/// operands and results.
///
/// If not, libtorch's kernel raises or wraps, each in its own way: the call is left to it.
bool numbers_fit(const ir::Graph& graph, const ir::Node& node);
/// The same for a call that is not in a graph yet.
bool numbers_fit(const MetaCall& call, std::span<const MetaResult> results);

}  // namespace tandem::ops
