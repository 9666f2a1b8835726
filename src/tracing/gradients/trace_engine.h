#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace torch::autograd {
struct Engine;
}

namespace tandem::tracing {

/// Puts an engine of ours before libtorch's, for threads that run a function to trace it; all
/// others get libtorch's own.
///
/// The engine is given edges, not tensors. If the function asks for gradients of a closed-over
/// tensor, the edge is that of the real one, which the graph of the trace does not lead to: it is
/// replaced by that of the stand-in. What a trace cannot follow is refused before the engine runs:
/// `backward()`, and gradients that pass through what was computed outside. With another engine in
/// the process already (Python's) nothing is done.
void put_engine_before();

/// The engine that runs in any case, for gradients that the program has not asked for.
torch::autograd::Engine& engine_behind();

/// What `torch::autograd::grad` is told.
struct GradientRequest {
  const std::vector<at::Tensor>&outputs, &inputs, &grad_outputs;
  std::optional<bool> retain_graph{};
  bool create_graph = false, allow_unused = false;
};
/// Calls it with the tensors as the graph of the function knows them: in a trace, closed-over ones
/// that ops have met become their stand-ins, whichever engine there is.
std::vector<at::Tensor> gradients(const GradientRequest& request);

}  // namespace tandem::tracing
