#pragma once

#include "loops/host/host_list.h"

#include <ATen/core/Tensor.h>

#include <span>

namespace tandem::loops {

/// Runs the nodes of a kernel in eager on what the kernel read, and compares what both made. An
/// InternalError names the first op whose result differs beyond rounding, with its line, the place
/// and both values, and shows the kernel's nodes.
void check_kernel(const KernelStep& step, Backend& judge, std::span<const at::Tensor> inputs,
                  std::span<const at::Tensor> outputs);

}  // namespace tandem::loops
