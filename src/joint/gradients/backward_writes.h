#pragma once

#include "joint/gradients/formulas.h"
#include "tracing/trace.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::joint {

/// Writes to inputs by hooks and custom functions of the backward: seen by how often each input has
/// been written.
///
/// Eager's backward finds in such an input what it holds by then, and so does the recorded one
/// (ops/own/inputs_in_backward.h). What a formula has saved it reads as it was, like any other.
class BackwardWrites {
 public:
  /// Before the backward.
  explicit BackwardWrites(tracing::Trace& trace);

  /// Gives inputs the data and the versions with which the forward left them: the engine is about
  /// to run, perhaps once more, or for another part.
  void restore();
  /// A formula has run, or its hooks have: it has written what was written since the last look.
  void note(int64_t formula);
  /// What has been recorded since the last one is this part of the backward.
  void end_part(int64_t part);
  /// Records that the backward reads and writes the inputs themselves. `signature`: of the forward.
  void record(const ir::Signature& signature, Formulas& formulas);

  /// An UnsupportedError if the backward has written an input.
  void check() const;

 private:
  struct State {
    uint64_t writes = 0;
    uint32_t version = 0;
    at::Tensor data{};  // what stands behind the functional wrapper
  };
  /// One input has been written by one formula.
  struct Write {
    size_t input = 0;  // position among the stand-ins
    int64_t formula = -1;
    uint32_t versions = 0;
    ir::NodeId mark = ir::kNoNode;  // what the input holds from then on; none: it is refused
  };
  /// Nodes after the first and up to the second.
  struct Part {
    int64_t part = 0;
    ir::NodeId before = ir::kNoNode, last = ir::kNoNode;
  };
  class Recorder;

  State state_of(size_t input) const;
  void put(size_t input, const at::Tensor& data);
  at::Tensor marked(size_t input, const at::Tensor& data, int64_t formula, ir::NodeId& mark);
  bool is_gone(const Write& write) const;
  [[noreturn]] void refuse(const tracing::StandIn& stand_in, const char* why) const;

  tracing::Trace& trace_;
  tracing::Recording& recording_;
  const ir::NodeId last_of_forward_;
  std::vector<State> found_;  // by stand-in
  std::vector<State> now_;    // as of the last look
  std::vector<Write> writes_;
  std::vector<Part> parts_;
};

}  // namespace tandem::joint
