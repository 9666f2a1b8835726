#pragma once

#include "tandem/ir/signature.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem::ops {

/// Runs the view ops of a replay on a real tensor. `grad_modes` says, per output of the replay
/// graph, which mode the view was made in: eager keeps that in the view, and judges later in-place
/// writes by it. Views made in one mode share their nodes.
std::vector<at::Tensor> replay_views(const ir::ViewReplay& replay, const at::Tensor& source,
                                     const std::vector<bool>& grad_modes);

}  // namespace tandem::ops
