#pragma once

#include "shapes/overlap.h"

#include <ATen/core/Tensor.h>

namespace tandem::ops {

/// Where the tensor lies in its storage.
shapes::StridedView place_of(const at::Tensor& tensor);

/// Whether a write through one tensor may be seen through the other: one storage, and overlapping
/// places in it. Capture refuses by this rule what guards let pass by it. A tensor does not share
/// memory with itself here.
bool shares_memory(const at::Tensor& a, const at::Tensor& b);

}  // namespace tandem::ops
