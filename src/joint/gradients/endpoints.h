#pragma once

#include "joint/gradients/gradient_stop.h"
#include "signature/read_signature.h"
#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace tandem::joint {

/// Where the backward starts: the history with which the call leaves a tensor.
struct Root {
  ir::History of;
  int64_t part = 0;  // of the backward, as in ir::TangentFacts
  at::Tensor tensor;
  torch::autograd::Edge edge;
};

/// Where it ends: a history of a tensor whose gradient somebody outside can use.
struct Target {
  ir::History of;
  torch::autograd::Edge edge;
  std::optional<GradientStop> stop{};  // nothing flows on, but for the part that it hides
};

/// Both ends of the backward of a traced call, which has one part per autograd node of the call.
/// While it lives the engine can be made to stop at targets; when it dies it runs freely again.
class Endpoints {
 public:
  Endpoints(const tracing::Trace& trace, const signature::Reading& reading);

  const std::vector<Root>& roots() const { return roots_; }
  int64_t parts() const { return parts_; }
  /// The targets of one part; opens and closes the stops for it.
  std::vector<const Target*> prepare(int64_t part);
  /// Where in the trace's autograd graph a history is, endpoint or not; invalid if nowhere.
  torch::autograd::Edge edge_of(const ir::History& history) const;

 private:
  void add_roots();
  void add_targets();
  void add_last_target(size_t index);
  void set_apart_dead_ends();
  void add_root(const ir::CallTensor& of, const at::Tensor& tensor, int64_t part);
  void add_target(const ir::History& of, bool stops);
  bool is_passed_apart(const torch::autograd::Edge& edge, const tracing::StandIn& one) const;
  const at::Tensor& tensor_of(const ir::CallTensor& of) const;
  const tracing::StandIn& input(size_t i) const { return trace_.stand_ins()[order_[i]]; }
  const tracing::Group& group(size_t i) const { return trace_.groups()[reading_.groups[i]]; }

  const tracing::Trace& trace_;
  const signature::Reading& reading_;
  const std::vector<size_t> order_;
  std::vector<Root> roots_;
  std::deque<Target> targets_;
  int64_t parts_ = 1;
};

}  // namespace tandem::joint
