#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::tracing {

/// `bernoulli(x, p)` fills a contiguous result in order; `x.bernoulli_(p)` fills x in the order of
/// its memory. Functionalization turns the second into the first, which on channels_last data
/// would hand the same draws to other elements.
bool is_bernoulli(const c10::OperatorHandle& op);

/// What to record for a `bernoulli(x, p)` that comes out of functionalization: an op of ours with
/// the same arguments that fills a tensor like x as the in-place form does, if that makes a
/// difference.
const c10::OperatorHandle& bernoulli_to_record(const c10::OperatorHandle& op, const at::Tensor& x);

/// Records: sets a generator (none: the default one of the CPU) to `state`; the result is where it
/// stood before. Counts as a draw, so that it keeps its place among draws.
at::Tensor exchange_generator_state(const at::Tensor& state,
                                    const std::optional<at::Generator>& generator);

}  // namespace tandem::tracing
