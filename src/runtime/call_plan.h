#pragma once

#include "tandem/stages.h"

#include <cstdint>
#include <vector>

namespace tandem::runtime {

/// How one saved value travels from forward to backward.
struct SavedSlot {
  int64_t input = -1;   // that forward input, kept by reference with eager's version check; or -1
  int64_t output = -1;  // the result whose memory it shows, and whose version is checked; or -1
  bool copy = false;    // the call overwrites its memory afterwards
};

/// One fresh result of the forward.
struct FreshResult {
  int64_t output = 0;    // position among the function's results
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
  std::vector<WriteBack> write_backs;
  std::vector<VersionBump> version_bumps;
  std::vector<std::vector<int64_t>> tangent_strides;  // those that the backward was recorded for

  /// One edge of the node: where its gradient comes from and which input it leads to.
  struct GradientEdge {
    int64_t input = 0;
    int64_t position = 0;  // among the backward graph's outputs
  };
  /// Arguments and closed-over tensors with a history first, closed-over leaves last: the edges of
  /// the latter are the same in every call.
  std::vector<GradientEdge> edges;
  size_t first_parameter_edge = 0;
};

CallPlan make_call_plan(const Split& split);

}  // namespace tandem::runtime
