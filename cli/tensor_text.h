#pragma once

#include "tandem/ir/type.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace tandem::cli {

/// The type of a tensor, as the graph text writes it.
ir::TensorType type_of(const at::Tensor& tensor);

/// All elements of a small tensor, `{1, 2.5}`; mean, minimum and maximum of a larger one.
std::string summary(const at::Tensor& tensor);

}  // namespace tandem::cli
