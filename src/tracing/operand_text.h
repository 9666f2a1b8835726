#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace tandem::tracing {

/// Words for errors of the tracer: `aten.max.dim`, `f32[4, 4]`, `f32[4, 4], 1, none`.
std::string op_text(const c10::OperatorHandle& op);
std::string tensor_text(const at::Tensor& tensor);
std::string operands_text(c10::ArrayRef<c10::IValue> operands);

/// Of an op tagged for it: whether these operands really make the size depend on data. An index without masks,
/// or a repeat with a given output size, does not.
bool result_size_depends_on_data(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> operands);

}  // namespace tandem::tracing
