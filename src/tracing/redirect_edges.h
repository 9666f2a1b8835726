#pragma once

#include "tracing/group.h"
#include "tracing/stand_in.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <span>

namespace tandem::tracing {

/// Makes nodes of custom autograd functions point to stand-ins.
///
/// No dispatcher hook sees `torch::autograd::Function::apply`: given a closed-over tensor, it takes
/// the edge of the real one, and the gradient would leave the trace unseen. Walks the autograd
/// graph of `results` as far as it is not older than `first_sequence_number` and replaces such
/// edges. `lift` adds the stand-in of a real leaf to `stand_ins` if it has none.
void redirect_edges(std::span<const at::Tensor> results, uint64_t first_sequence_number,
                    const std::function<void(const at::Tensor&)>& lift,
                    const std::deque<StandIn>& stand_ins, std::span<const Group> groups);

}  // namespace tandem::tracing
