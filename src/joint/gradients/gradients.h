#pragma once

#include "joint/gradients/formulas.h"
#include "joint/gradients/gradient_origins.h"
#include "tracing/inputs/stand_in.h"
#include "tracing/recording/recording.h"
#include "tracing/trace.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <span>
#include <string>
#include <vector>

namespace tandem::joint {

/// Whether the backward shall compute a gradient for it: once per tensor, where a gradient can
/// flow.
bool wants_gradient(const tracing::StandIn& stand_in);

/// Gradients of edges, not of tensors: the edge taken at entry stays right whatever happens to the
/// tensor.
struct Differentiation {
  std::vector<torch::autograd::Edge> roots{};
  std::vector<at::Tensor> tangents{};  // one per root
  std::vector<torch::autograd::Edge> wanted{};
  GradientOrigins* origins = nullptr;  // watches the engine
  FormulaWatch* formulas = nullptr;    // so does this
};

struct Gradients {
  std::vector<at::Tensor> values;   // one per wanted edge; undefined where nothing flows
  std::vector<RootSet> origins;     // from which roots each arrives, if somebody watches
  std::vector<std::string> raises;  // one per tangent: what eager's backward would throw, or empty
  std::vector<std::vector<bool>> raises_in;  // per tangent and wanted edge: on the way to which
};

/// Runs the engine into the recording. Eager raises in backward, not in the call, when a saved
/// tensor was overwritten, and only if a gradient is asked for that lies behind it: a tangent that
/// raises is marked, and left out where it does.
Gradients differentiate(tracing::Recording& recording, const Differentiation& task);

/// The same in the state of the backward. In grad mode with a history of their own, for what
/// differentiates them again. What eager's backward would throw passes through.
std::vector<at::Tensor> differentiate_in_backward(tracing::Recording& recording,
                                                  const Differentiation& task);

/// Takes out gradients that depend on none of the tangents: a custom function's node turns the
/// missing gradient behind a closed stop into zeros.
void drop_independent(const ir::Graph& graph, std::span<const ir::ValueId> tangents,
                      std::vector<ir::ValueId>& gradients);

/// An UnsupportedError if differentiating brought in a tensor that the forward never used:
/// `inputs_before` counts the stand-ins of the forward.
void check_nothing_lifted(const tracing::Trace& trace, size_t inputs_before);

}  // namespace tandem::joint
