#pragma once

#include "tracing/inputs/inputs.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <span>
#include <unordered_set>

namespace tandem::tracing {

/// Makes nodes of custom autograd functions point to stand-ins.
///
/// No dispatcher hook sees `torch::autograd::Function::apply`: given a closed-over tensor, it takes
/// the edge of the real one, and the gradient would leave the trace unseen. Walks the autograd
/// graph of `results` as far as it is not older than the trace and replaces such edges.
/// A real leaf that no op has seen becomes an input.
void redirect_edges(Inputs& inputs, std::span<const at::Tensor> results);

/// The same for the autograd graph behind `roots`, while the function runs. Returns the nodes of
/// it.
std::unordered_set<torch::autograd::Node*> redirect_edges(Inputs& inputs,
                                                          const torch::autograd::edge_list& roots);

/// The history of a real tensor as it is noted. A view that is asked while its stand-in has been
/// written would make another history, and keep it if the call is then refused.
torch::autograd::Edge noted_edge(const at::Tensor& real);

/// Whether an edge leads to a node of this trace, the end at a stand-in included.
bool is_inside(const Inputs& inputs, const torch::autograd::Edge& edge);

}  // namespace tandem::tracing
