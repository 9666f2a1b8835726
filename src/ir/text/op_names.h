#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <string_view>

namespace tandem::ir {

/// `aten.max.dim`: how the graph text writes an operator.
std::string op_text(const c10::OperatorHandle& op);

/// The operator that `text` names, if libtorch has it.
std::optional<c10::OperatorHandle> find_op(std::string_view text);

/// Names that whoever wrote `text` may have meant, `a, b or c`; empty if none is near.
std::string near_ops(std::string_view text);

}  // namespace tandem::ir
