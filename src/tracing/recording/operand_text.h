#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace tandem::tracing {

/// Words for errors of the tracer: `f32[4, 4]`, `f32[4, 4], 1, none`.
std::string tensor_text(const at::Tensor& tensor);
std::string operands_text(c10::ArrayRef<c10::IValue> operands);

}  // namespace tandem::tracing
