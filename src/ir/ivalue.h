#pragma once

#include "tandem/ir/graph.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/FunctionRef.h>

namespace tandem::ir {

/// The operand for one argument of a schema. The schema's type decides between an integer and a
/// dtype, layout or memory format, and is what makes the operand print well; it must be
/// `Argument::real_type()`, since `type()` calls all of them int. A generator goes to the graph's
/// table.
Operand to_operand(Graph& graph, const c10::IValue& value, const c10::TypePtr& schema_type,
                   c10::function_ref<ValueId(const at::Tensor&)> value_of);

/// The way back, for running a node. Sizes must be constant.
c10::IValue to_ivalue(const Graph& graph, const Operand& operand, const c10::TypePtr& schema_type,
                      c10::function_ref<at::Tensor(ValueId)> tensor_of);

}  // namespace tandem::ir
