#pragma once

#include "tandem/ir/graph.h"

#include <c10/core/Scalar.h>

#include <optional>

namespace tandem::passes {

/// The number that all elements of a tensor are, if the graph says so: a constant, `full`, `ones`
/// or `zeros`, also seen through views. Nothing for complex numbers.
std::optional<c10::Scalar> fill_value(const ir::Graph& graph, ir::ValueId value);

/// A number among the operands of a node; nothing for a size that is a symbol.
std::optional<c10::Scalar> number_in(const ir::Operand& operand);

/// Whether an op fills its result with one number and reads no data.
bool is_fill(const ir::Node& node);

}  // namespace tandem::passes
