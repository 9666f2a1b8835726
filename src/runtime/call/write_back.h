#pragma once

#include "runtime/call/call_plan.h"

#include <ATen/core/Tensor.h>

#include <span>

namespace tandem::runtime {

/// Another handle on the same memory and version counter, which autograd knows nothing of.
at::Tensor handle_of(const at::Tensor& tensor);

/// Writes below the key that counts versions: the counter then moves by exactly what eager's would.
void copy_below_autograd(const at::Tensor& to, const at::Tensor& from);

/// Values that the write-back would overwrite, or that are somebody else's memory, get memory of
/// their own; those that show an input whose sizes will change, a handle of their own.
void protect(const CallPlan& plan, std::span<at::Tensor> outputs);

/// When the inputs are written: saved values that are their new data become handles on them.
void keep_written_handles(const CallPlan& plan, std::span<const at::Tensor> inputs,
                          std::span<at::Tensor> outputs);

/// Data and version counters of a call that changes nothing else.
void write_back(const CallPlan& plan, std::span<const at::Tensor> inputs,
                std::span<at::Tensor> outputs);

}  // namespace tandem::runtime
