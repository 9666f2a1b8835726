#pragma once

#include "runtime/backward/primals.h"
#include "runtime/entry_state.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

namespace tandem::runtime {

using NodePtr = decltype(torch::autograd::Edge::function);

/// The gradients that one autograd node of a call gives, in grad mode with a history of their own.
/// `tangents` are those of the node, undefined ones included. The result has one gradient per
/// gradient of the part, in the order of the signature.
std::vector<at::Tensor> call_gradients(const EntryState& entry, size_t part,
                                       const partition::Asked& asked, const Primals& primals,
                                       std::span<const at::Tensor> tangents, const NodePtr& node);

}  // namespace tandem::runtime
