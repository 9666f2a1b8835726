#pragma once

#include "tandem/ir/graph.h"

#include <cstdint>
#include <optional>

namespace tandem::ops {

/// By how many elements result `index` of a view starts behind operand 0, of the same dtype.
/// Nothing for what is no such view, for sizes that are symbols, and for ops that count from the
/// start of the storage or leave a conjugation to be done.
std::optional<int64_t> offset_in_source(const ir::Graph& graph, const ir::Node& node, size_t index);

}  // namespace tandem::ops
