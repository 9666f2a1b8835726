#pragma once

#include "ir/gradient_arguments.h"
#include "signature/read_signature.h"
#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tandem::joint {

/// The step from a call to the gradients that one of its autograd nodes gives, as a function of the
/// call's inputs and tangents: what a backward with create_graph has to compute.
///
/// That function is traced like any other, so that it can be differentiated in turn. What it takes
/// is named in ir::GradientArguments.
struct Derivation {
  ir::Signature of;                // the call
  std::vector<at::Tensor> lifted;  // by the call, in the order of its inputs
  size_t arguments = 0;            // tensors that the call takes, undefined ones included
  size_t part = 0;                 // of its backward
  std::vector<bool> defined;       // one per tangent of the call
  std::vector<bool> wanted{};      // one per gradient of the call; empty: all

  /// Closed-over tensors that the call writes, or that have got other data since: what they were
  /// before is passed.
  std::vector<at::Tensor> replaced;
  /// Inputs of the call to which set_data() has given other data since, by position. What the
  /// formulas have saved of such a tensor itself they read as it is by now, and that is passed.
  std::vector<size_t> exchanged;
  /// Histories on which the gradients depend, too, and which no argument of the call has: those of
  /// results whose values formulas have saved, of rewritten inputs, of leaves that the function
  /// made. A tensor of the same kind is passed, with this history.
  std::vector<ir::History> histories;
  /// What the call drew from, none standing for the default one: where they stood is passed.
  std::vector<std::optional<at::Generator>> generators;

  /// Of what the function takes, in the list of its tensors.
  ir::GradientArguments<size_t> positions() const;
};

/// In a trace of the call, gives its inputs what set_data() has given them since, while it lives.
/// What the function has computed of them stays, and so do views. Afterwards inputs are again what
/// they were when the function ended.
class ExchangedData {
 public:
  ExchangedData(const tracing::Trace& trace, std::span<const Derivation> derivations);
  ~ExchangedData();
  ExchangedData(const ExchangedData&) = delete;
  ExchangedData& operator=(const ExchangedData&) = delete;

 private:
  std::vector<std::pair<at::Tensor, c10::intrusive_ptr<c10::TensorImpl>>> before_;
};

/// Differentiates the results of a trace, with a history in grad mode. One gradient per gradient
/// that the signature has for the part; undefined where it is not wanted or nothing flows. A
/// UserError if the trace is not one of the call.
std::vector<at::Tensor> record_gradients(tracing::Trace& trace, const signature::Reading& reading,
                                         const Derivation& derivation);

}  // namespace tandem::joint
