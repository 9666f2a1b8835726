#pragma once

#include "tracing/inputs/inputs.h"

#include <cstdint>
#include <span>

namespace tandem::tracing {

/// Makes nodes of custom autograd functions point to stand-ins.
///
/// No dispatcher hook sees `torch::autograd::Function::apply`: given a closed-over tensor, it takes
/// the edge of the real one, and the gradient would leave the trace unseen. Walks the autograd
/// graph of `results` as far as it is not older than `first_sequence_number` and replaces such
/// edges.
/// A real leaf that no op has seen becomes an input.
void redirect_edges(Inputs& inputs, std::span<const at::Tensor> results,
                    uint64_t first_sequence_number);

}  // namespace tandem::tracing
