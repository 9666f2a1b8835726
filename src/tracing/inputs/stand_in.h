#pragma once

#include "tandem/ir/graph.h"
#include "tracing/recording/recording.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::tracing {

/// A tensor that enters the trace from outside, and what the function sees in its place.
struct StandIn {
  at::Tensor real;
  at::Tensor tensor;  // functional wrapper around a traced tensor
  ir::ValueId input = ir::kNoValue;
  int64_t duplicate_of = -1;  // position of the stand-in of the same real tensor
  int64_t counter_of = -1;    // position of an earlier one with the same version counter
  int64_t group = -1;         // that it is a member of
  bool closed_over = false;   // the function reached the real tensor by itself
  bool is_place = false;      // nobody reads it: `edge` is inside the function
  /// Outside it is a view, whose grad_fn is made anew after any write to its memory: the edges of
  /// which reads after such writes take the last, and the version at which that one was made.
  std::vector<torch::autograd::Edge> renewed{};
  bool renews = false;
  uint32_t edge_version = 0;

  // as the function finds it
  ir::ValueId entry_value = ir::kNoValue;  // the input, or a view of the base of its group
  torch::autograd::Edge edge{};            // where its gradient goes; invalid if it needs none
  uint32_t version = 0;
  bool requires_grad = false;
  bool is_leaf = true;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage{};
  size_t storage_bytes = 0;
};

/// Makes the stand-in of `real` and a graph input for it: same metadata, requires_grad and
/// leafness. Writes to inference tensors raise, except for callers in inference mode.
StandIn make_stand_in(Recording& recording, const at::Tensor& real, ir::Descriptor role,
                      std::string name, bool caller_in_inference_mode);

/// Mirrors requires_grad and leafness of the real tensor, with an edge of the trace's own.
void take_autograd_state(StandIn& stand_in, const at::Tensor& real);
/// The edge that it has unless a differentiable op has written it.
const torch::autograd::Edge& last_edge(const StandIn& stand_in);
/// Whether the node is the end of one of its edges.
bool is_entry(const StandIn& stand_in, const torch::autograd::Node* node);
/// Gives it an edge of its own for the reads to come, if it renews and its version has moved.
void renew_edge(StandIn& stand_in);
/// Keeps what the function will be compared with afterwards.
void note_entry_state(StandIn& stand_in);

/// A tangent: a functional tensor like `like`, and a graph input for it.
at::Tensor make_tangent(Recording& recording, const at::Tensor& like, int64_t index);

/// Zero for inference tensors, which have no counter.
uint32_t version_of(const at::Tensor& tensor);

}  // namespace tandem::tracing
