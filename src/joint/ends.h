#pragma once

#include "joint/cut.h"
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

/// Where the backward starts: the gradient of one tensor as the call leaves it.
struct Root {
  ir::Place place;
  int64_t part = 0;  // of the backward, as in ir::TangentFacts
  at::Tensor of;
  torch::autograd::Edge edge;
};

/// Where it ends: the gradient of one tensor, at one place of autograd's graph.
struct Target {
  ir::Place place;
  bool after = false;
  torch::autograd::Edge edge;
  std::optional<Cut> cut{};  // nothing flows on, but for the part of what it cuts off
};

/// Both ends of the backward of a traced call, which has one part per autograd node of the call.
/// While it lives the engine can be made to stop at the cuts; when it dies all are open.
class Ends {
 public:
  Ends(const tracing::Trace& trace, const signature::Reading& reading);

  const std::vector<Root>& roots() const { return roots_; }
  int64_t parts() const { return parts_; }
  /// The targets of one part; opens and closes the cuts for it.
  std::vector<const Target*> prepare(int64_t part);

 private:
  void add_roots();
  void add_targets();
  void set_apart_dead_ends();
  void add_renewed(const tracing::StandIn& one, size_t index);
  void add_root(ir::Place place, const at::Tensor& of, int64_t part);
  void add_target(ir::Place::Of of, size_t index, bool after, const torch::autograd::Edge& edge,
                  bool cut);
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
