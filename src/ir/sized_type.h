#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/type.h"

#include <c10/util/FunctionRef.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace tandem::ir {

/// Whether a tensor of this type has no elements whatever its symbols are: it is there for its
/// sizes.
bool carries_sizes(const TensorType& type);

/// The strides of a tensor of this type that has these sizes; nothing if they do not follow.
std::optional<std::vector<int64_t>> strides_at(const TensorType& type,
                                               const std::vector<int64_t>& sizes);

/// How many bytes its elements have when each symbol is what it was in the recording; a few
/// thousand elements if that is not known.
int64_t expected_bytes(const Graph& graph, const TensorType& type);

/// Whether an argument of a node follows from symbols.
bool has_symbols(const Operand& operand);
/// The argument where each symbol is a number.
Operand with_numbers(const Operand& operand,
                     c10::function_ref<int64_t(const std::string&)> number_of);
/// Those that types and operands of a graph mention.
std::unordered_set<std::string> mentioned_symbols(const Graph& graph);

}  // namespace tandem::ir
