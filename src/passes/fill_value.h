#pragma once

#include "tandem/ir/graph.h"

#include <c10/core/Scalar.h>

#include <optional>

namespace tandem::passes {

/// The number that all elements of a tensor are, if the graph says so: a constant, `full`, `ones`
/// or `zeros`, also seen through views. Nothing for complex numbers.
std::optional<c10::Scalar> fill_value(const ir::Graph& graph, ir::ValueId value);

/// Whether an op fills its result with one number and reads no data.
bool is_fill(const ir::Node& node);

}  // namespace tandem::passes
