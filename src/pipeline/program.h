#pragma once

#include "joint/derivation.h"
#include "libtorch/thread_state.h"
#include "tandem/function.h"
#include "tracing/trace.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tandem::pipeline {

/// Leaves that a function closes over, by name or not, as its traces have met them. Any thread.
class MetLeaves {
 public:
  /// Of a trace that is over.
  void note(const tracing::Trace& trace);
  std::vector<tracing::WeakTensor> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<tracing::WeakTensor> leaves_;
};

/// What is traced: the user's function, or gradients of it of some order.
struct Program {
  Program(detail::FlatFunction function)  // NOLINT: a function is a program
      : function(std::move(function)) {}

  detail::FlatFunction function;
  std::vector<joint::Derivation> derivations{};  // one after the other

  // Of the call that is differentiated: the function must run as it did then.
  libtorch::ThreadState thread{};
  uint64_t fingerprint = 0;

  /// Runs of the function for the sake of its gradients; shared by all that is derived from one
  /// function.
  std::shared_ptr<std::atomic<int64_t>> derived_traces = std::make_shared<std::atomic<int64_t>>(0);
  /// Graphs that run on `eager` for a defect of their backend; shared in the same way.
  std::shared_ptr<std::atomic<int64_t>> backend_fallbacks =
      std::make_shared<std::atomic<int64_t>>(0);

  /// The gradients of these are watched from the beginning of a trace. Shared in the same way.
  std::shared_ptr<MetLeaves> met_leaves = std::make_shared<MetLeaves>();

  bool is_derived() const { return !derivations.empty(); }
  /// How many tensors the function itself takes; the rest of a list belongs to the derivations.
  size_t own_tensors(const detail::Flat& arguments) const;
  std::vector<std::string> tensor_names(const detail::Flat& arguments) const;
  std::vector<tracing::Replacement> replacements() const;
};

/// What one run of a program is known by afterwards.
struct ProgramRun {
  /// Another run has to take the place of this one, of which nothing else is known.
  std::optional<tracing::Retrace> retrace{};
  std::vector<tracing::UserCall> calls{};  // of the function itself, in order
  /// Tells one run of the function from another (fingerprint.h).
  uint64_t fingerprint = 0;
  /// Of a derived program: the last node of what calls before have done already.
  ir::NodeId happened = ir::kNoNode;
};

/// Runs the program into a trace.
ProgramRun run_program(const Program& program, tracing::Trace& trace);

}  // namespace tandem::pipeline
