#pragma once

#include "tracing/recording/recording.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace tandem::tracing {

/// Grad mode off in place of inference mode, for a scope.
///
/// Functionalization cannot make views of ordinary tensors in inference mode. The graph is the
/// same; results become inference tensors in the call.
class WithoutInferenceMode {
 public:
  WithoutInferenceMode();
  bool replaces_inference_mode() const { return guard_.has_value(); }

 private:
  std::optional<c10::InferenceMode> guard_;
};

/// The thread's state while a trace is open: recording, functionalization and lifting on, autograd
/// in this thread only, grad mode off in place of inference mode. Restored when it dies, exceptions
/// included.
class TracingState {
 public:
  explicit TracingState(Recording& recording);
  ~TracingState();
  TracingState(const TracingState&) = delete;
  TracingState& operator=(const TracingState&) = delete;

  /// The caller is in inference mode.
  bool caller_in_inference_mode() const { return normal_mode_.replaces_inference_mode(); }

 private:
  WithoutInferenceMode normal_mode_;  // first: it restores all keys of the thread
  RecordingScope scope_;
  at::functionalization::impl::FunctionalizationReapplyViewsGuard reapply_views_;
  c10::impl::IncludeDispatchKeyGuard keys_;
  bool multithreading_, hooks_wait_;
};

/// Inside a trace, calls real kernels on real tensors for a scope: nothing is recorded or lifted.
class OutsideTrace {
 public:
  OutsideTrace();

 private:
  c10::impl::ExcludeDispatchKeyGuard keys_;
};

}  // namespace tandem::tracing
