#pragma once

#include "tandem/ir/graph.h"
#include "tracing/recording/recording.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>  // an Edge owns a Node

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
  bool apart = false;         // a member that needs a gradient though the base does not
  bool closed_over = false;   // the function reached the real tensor by itself
  bool history_only = false;  // nobody reads it: its history is one inside the function
  /// Its histories by number, but for those that differentiable writes give it; none if it needs no
  /// gradient. There is more than one if it `renews`: outside it is a view, whose grad_fn is made
  /// anew after any write to its memory.
  std::vector<torch::autograd::Edge> histories{};
  bool renews = false;
  uint32_t history_version = 0;  // its version when the last one was made

  // as the function finds it
  ir::ValueId first_value = ir::kNoValue;  // the input, or a view of the base of its group
  uint32_t version = 0;
  bool requires_grad = false;
  bool is_leaf = true;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage{};
  size_t storage_bytes = 0;
};

/// An UnsupportedError if no stand-in can be made of such a tensor.
void require_plain(const at::Tensor& real);

/// Makes the stand-in of `real` and a graph input for it: same metadata, requires_grad and
/// leafness. Writes to inference tensors raise, except for callers in inference mode.
StandIn make_stand_in(Recording& recording, const at::Tensor& real, ir::Descriptor role,
                      std::string name, bool caller_in_inference_mode);

/// Mirrors requires_grad and leafness of the real tensor, with a history of the trace's own.
void take_autograd_state(StandIn& stand_in, const at::Tensor& real);
/// The history that it has unless a differentiable op has written it; invalid if it needs none.
torch::autograd::Edge unwritten_history(const StandIn& stand_in);
/// Whether one of its histories is this node.
bool is_history_of(const StandIn& stand_in, const torch::autograd::Node* node);
/// Gives it another history for the reads to come, if it renews and its version has moved.
void renew_history(StandIn& stand_in);
/// Keeps what the function will be compared with afterwards.
void note_first_state(StandIn& stand_in);

/// A tangent: a functional tensor like `like`, and a graph input for it.
at::Tensor make_tangent(Recording& recording, const at::Tensor& like, int64_t index);
/// A functional tensor for another value of the graph; `like` is traced and has its metadata.
at::Tensor make_functional(Recording& recording, ir::ValueId value, const at::Tensor& like);

/// Zero for inference tensors, which have no counter.
uint32_t version_of(const at::Tensor& tensor);

}  // namespace tandem::tracing
