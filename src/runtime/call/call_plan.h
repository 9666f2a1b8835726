#pragma once

#include "runtime/call/action.h"
#include "tandem/stages.h"

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::runtime {

/// What a call does around the kernels, worked out once from signature and forward graph.
struct CallPlan {
  /// Before the kernels: inputs of which eager is asked whether they may be written in place.
  std::vector<size_t> checked;
  /// After the kernels, in this order. Most calls have a list of a few.
  std::vector<Action> actions;

  std::vector<Saved::How> saved;
  /// Of those that are inputs themselves, in that order: as the kernels of the backward expect
  /// them.
  struct SavedInput {
    size_t input = 0;
    std::vector<int64_t> sizes, strides;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    /// It is read in the memory that it had: through views that the forward has taken, or only to
    /// compute something again.
    bool as_found = false;
  };
  std::vector<SavedInput> saved_inputs;
  std::vector<size_t> lifted_as_found;                // closed-over ones that are read so
  std::vector<SavedInput> written_later;              // inputs that the backward writes, by slot
  int64_t first_saved = 0;                            // position among the forward graph's outputs
  std::vector<std::vector<int64_t>> tangent_strides;  // those that the backward was recorded for
  std::vector<bool> sized_tangents;  // whose strides depend on data; empty if none do

  /// Results that one ViewReplay of the signature makes at one time of the call.
  struct Replay {
    size_t replay = 0;
    std::vector<bool> grad_modes;  // one per output of its graph
    std::vector<size_t> made;      // outputs of its graph that are wanted now
  };
  std::vector<Replay> replays;

  /// Where gradients go: histories that the outside can name, with which the call finds a tensor
  /// (number 0) or leaves it. Gradients of those in between go where the first one leads.
  std::vector<ir::History> targets;
  size_t taken_targets = 0;  // the first ones: their edges are taken in each call

  /// A history that is passed to the function of a part's gradients, and where its edge is.
  struct PassedHistory {
    enum class From : uint8_t {
      Edge,  // one of the node's edges
      Slot,  // a slot of the node itself
      Kept,  // what the node keeps of inputs that it has rewritten, see CallNode::keep_history
    };
    ir::History of;
    From from = From::Edge;
    size_t index = 0;
  };

  /// One autograd node: of results (0, and further ones behind all others), or of one rewritten
  /// input or group.
  struct Part {
    struct Edge {
      size_t target = 0;
      int64_t position = 0;   // of the gradient among the backward graph's outputs
      bool last_use = false;  // nobody needs the edge of the target after this one
    };
    int64_t of = 0;                // which part of the backward it is, or belongs to
    std::vector<size_t> tangents;  // in the order of the node's slots
    std::vector<Edge> edges;
    /// Inputs that the last edges lead to: closed-over leaves, whose edges are the same in every
    /// call.
    std::vector<size_t> leaves{};
    std::vector<PassedHistory> passed;
  };
  std::vector<Part> parts;
};

/// The strides that the backward expects of a tangent with these sizes.
std::vector<int64_t> tangent_strides(const ir::TensorType& type, at::IntArrayRef sizes);

CallPlan make_call_plan(const Split& split);

}  // namespace tandem::runtime
