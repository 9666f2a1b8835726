#pragma once

#include "tandem/stages.h"

#include <cstdint>
#include <vector>

namespace tandem::runtime {

/// How one saved value travels from forward to backward.
struct SavedSlot {
  int64_t input = -1;   // that forward input, kept by reference with eager's version check; or -1
  int64_t output = -1;  // the result whose memory it shows, and whose version is checked; or -1
  int64_t base = -1;    // the same, of a base
  bool copy = false;    // the call overwrites its memory afterwards
  /// It shows the memory of an input that the call changes. A handle of its own is kept, so that
  /// nothing refers back to the input, and the version is checked.
  bool shallow = false;
  int64_t written = -1;  // the input whose new data it is: the handle is made once that is written
  int64_t watched =
      -1;  // an input whose new data it shows in another shape: its version is checked

  /// Somebody else could write what it shows, and eager would notice.
  bool is_watched() const { return output >= 0 || base >= 0 || shallow || watched >= 0; }
};

/// One fresh result, or hidden base, of the forward.
struct FreshResult {
  int64_t output = 0;    // position among the function's results, or among the bases
  int64_t position = 0;  // position among the forward graph's outputs
  bool copy = false;  // its memory belongs to somebody else: an input, a constant, another result
};

/// One input that the call writes.
struct WriteBack {
  int64_t input = 0;
  int64_t position = 0;  // of the new data among the forward graph's outputs
  bool copy = false;     // the new data lies in memory that another write-back overwrites
};

/// One input whose version counter the call moves.
struct VersionBump {
  int64_t input = 0;
  int64_t count = 0;
};

/// What a call does around the kernels, worked out once from signature and forward graph.
struct CallPlan {
  std::vector<SavedSlot> saved;
  int64_t first_saved = 0;  // position among the forward graph's outputs
  std::vector<FreshResult> fresh;
  std::vector<FreshResult> bases;  // those that no result is
  std::vector<WriteBack> write_backs;
  std::vector<VersionBump> version_bumps;
  std::vector<std::vector<int64_t>> tangent_strides;  // those that the backward was recorded for

  /// Where gradients go: histories that the outside can name, with which the call finds a tensor
  /// (number 0) or leaves it. Gradients of those in between go where the first one leads.
  std::vector<ir::History> targets;

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

  /// One autograd node: of the results (0), or of one rewritten input or group.
  struct Part {
    struct Edge {
      size_t target = 0;
      int64_t position = 0;  // of the gradient among the backward graph's outputs
    };
    std::vector<size_t> tangents;  // in the order of the node's slots
    std::vector<Edge> edges;
    std::vector<PassedHistory> passed;
  };
  std::vector<Part> parts;

  /// The edges of the only node of a call that gives gradients to inputs and nothing else.
  /// Arguments and closed-over tensors with a history first, closed-over leaves last: the edges of
  /// the latter are the same in every call.
  struct GradientEdge {
    int64_t input = 0;
  };
  std::vector<GradientEdge> edges;
  size_t first_parameter_edge = 0;
  bool has_plain_edges = false;

  /// Inputs and groups that the call changes in a way which autograd or their metadata shows, in an
  /// order in which each finds the edges that its node needs.
  struct Change {
    ir::CallTensor tensor;
    int64_t part = -1;   // of its node, if it is rewritten
    int64_t write = -1;  // its place in write_backs
    int64_t delta = 0;   // what its version counter moves by
  };
  std::vector<Change> changes;
  bool needs_protection = false;  // protect() has something to do
  bool writes = false;            // so has write_back()
  /// Nothing happens but kernels, write-backs below autograd, fresh results and aliases of inputs.
  bool is_plain = true;
};

CallPlan make_call_plan(const Split& split);

}  // namespace tandem::runtime
