#pragma once

#include "tandem/export.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace tandem {

/// Gradients of `outputs` with respect to `inputs`, as `torch::autograd::grad` gives them.
///
/// Inside a compiled function `inputs` may be parameters and other tensors that it closes over, and
/// with `create_graph` what is computed from the gradients can be differentiated again. Outside of
/// one it is a call of `torch::autograd::grad`.
TANDEM_API std::vector<at::Tensor> grad(const std::vector<at::Tensor>& outputs,
                                        const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Tensor>& grad_outputs = {},
                                        std::optional<bool> retain_graph = std::nullopt,
                                        bool create_graph = false, bool allow_unused = false);

}  // namespace tandem
