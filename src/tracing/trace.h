#pragma once

#include "tandem/function.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::tracing {

/// One run of the user's function on stand-ins.
///
/// While it lives the thread is in tracing state, so that `signature` and `joint` can read facts
/// off the functional wrappers and differentiate into the same recording. Of the real
/// tensors only `equal` reads the data; nothing writes it.
class Trace {
 public:
  Trace(const detail::Flat& arguments, InputOptions options,
        std::span<const Replacement> replacements = {});
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Calls the function, once. What it throws passes through, except that libtorch's words for
  /// reading data that a trace does not have become an UnsupportedError.
  void run(const detail::FlatFunction& function);

  Recording& recording() { return recording_; }
  const Recording& recording() const { return recording_; }
  Inputs& inputs() { return inputs_; }
  const Inputs& inputs() const { return inputs_; }
  // The inputs, as those see them who read the trace.
  const std::deque<StandIn>& stand_ins() const { return inputs_.stand_ins(); }
  size_t argument_count() const { return inputs_.argument_count(); }
  const std::vector<Group>& groups() const { return inputs_.groups(); }
  std::string name_of(const StandIn& stand_in) const { return inputs_.name_of(stand_in); }

  /// What the function returned, closed-over tensors mapped to their stand-ins.
  const detail::Flat& results() const { return results_; }
  /// Of gradients, in place of what the function returned.
  void set_results(std::vector<at::Tensor> results);
  /// What stands for the n-th tensor of the arguments.
  const at::Tensor& argument(size_t n) const { return arguments_.tensors[n]; }

  /// The function leaves another grad mode than it found: this one.
  std::optional<bool> grad_mode_after() const { return grad_mode_after_; }
  /// Where the function made what a traced tensor holds now: `net.cpp:41`; empty if unknown.
  std::string line_of(const at::Tensor& tensor) const;

 private:
  [[noreturn]] void explain(const c10::Error& error) const;
  void require_unwritten(const at::Tensor& result) const;
  void keep_history(const at::Tensor& result) const;
  /// A line of an error: of the op that threw, else of the last one before.
  std::string where() const;

  Recording recording_;
  Inputs inputs_;
  std::optional<bool> grad_mode_after_;
  detail::Flat arguments_;  // stand-ins
  detail::Flat results_;
  TracingState state_;  // last: the thread leaves the tracing state before anything above dies
};

/// Whether a trace is running on this thread: a compiled function called inside one is inlined.
bool is_tracing();

}  // namespace tandem::tracing
