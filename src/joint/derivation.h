#pragma once

#include "signature/read_signature.h"
#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace tandem::joint {

/// The step from a call to the gradients that one of its autograd nodes gives, as a function of the
/// call's inputs and tangents: what a backward with create_graph has to compute.
///
/// That function is traced like any other, so that it can be differentiated in turn. It takes the
/// arguments of the call, then as many tensors as the lists below say, then the defined tangents.
struct Derivation {
  ir::Signature of;                // the call
  std::vector<at::Tensor> lifted;  // by the call, in the order of its inputs
  size_t arguments = 0;            // tensors that the call takes, undefined ones included
  size_t part = 0;                 // of its backward
  std::vector<bool> defined;       // one per tangent of the call

  /// Closed-over tensors that the call writes: what they were before is passed.
  std::vector<at::Tensor> replaced;
  /// Gradients of the part whose way on does not begin at an input as the call found it: at a
  /// rewritten input, at a leaf that the function made. The gradients depend on such tensors, too;
  /// one of the same kind is passed, with the place in autograd's graph that it has.
  std::vector<ir::GradientFacts> beyond;
  /// Tangents of the part: results and rewritten inputs whose new values formulas have saved. As
  /// above.
  std::vector<size_t> roots;
  /// Inputs that are views of a group which the part rewrites: formulas may have saved what such a
  /// view shows when the call ends. As above.
  std::vector<size_t> views;
  /// What the call drew from, none standing for the default one: where they stood is passed.
  std::vector<std::optional<at::Generator>> generators;

  size_t first_beyond() const { return arguments + replaced.size(); }
  size_t first_root() const { return first_beyond() + beyond.size(); }
  size_t first_view() const { return first_root() + roots.size(); }
  size_t first_state() const { return first_view() + views.size(); }
  size_t first_tangent() const { return first_state() + generators.size(); }
};

/// Differentiates the results of a trace, with a history. One gradient per gradient that the
/// signature has for the part; undefined where nothing flows. A UserError if the trace is not one
/// of the call.
std::vector<at::Tensor> record_gradients(tracing::Trace& trace, const signature::Reading& reading,
                                         const Derivation& derivation);

}  // namespace tandem::joint
