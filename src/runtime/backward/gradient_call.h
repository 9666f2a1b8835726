#pragma once

#include "runtime/backward/primals.h"
#include "runtime/entry_state.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <vector>

namespace tandem::runtime {

using NodePtr = decltype(torch::autograd::Edge::function);

/// Of the edges of a node, those that do not lead to inputs as the call found them, in the order of
/// the signature's gradients: joint::Derivation::beyond.
std::vector<CallPlan::Part::Edge> edges_beyond(const EntryState& entry, size_t part);

/// Inputs that are views of the group which the part rewrites, if it does:
/// joint::Derivation::views.
std::vector<size_t> views_of(const ir::Signature& signature, const CallPlan& plan, size_t part);

/// The gradients that one autograd node of a call gives, with a history of their own. `tangents`
/// are those of the node, undefined ones included. The result has one
/// gradient per gradient of the part, in the order of the signature.
std::vector<at::Tensor> call_gradients(const EntryState& entry, size_t part,
                                       const std::vector<bool>& defined, const Primals& primals,
                                       std::span<const at::Tensor> tangents, const NodePtr& node);

}  // namespace tandem::runtime
