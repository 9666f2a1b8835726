#pragma once

#include "tracing/recording.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace tandem::tracing {

/// The thread's state while a trace is open: recording, functionalization and lifting on, autograd
/// in this thread only. Restored when it dies, exceptions included.
class Ambient {
 public:
  explicit Ambient(Recording& recording);
  ~Ambient();
  Ambient(const Ambient&) = delete;
  Ambient& operator=(const Ambient&) = delete;

 private:
  RecordingScope scope_;
  at::functionalization::impl::FunctionalizationReapplyViewsGuard reapply_views_;
  c10::impl::IncludeDispatchKeyGuard keys_;
  bool multithreading_;
};

/// Inside a trace, calls real kernels on real tensors for a scope: nothing is recorded or lifted.
class OutsideTrace {
 public:
  OutsideTrace();

 private:
  c10::impl::ExcludeDispatchKeyGuard keys_;
};

/// What a function could leave changed behind it, in this thread.
struct ThreadSwitches {
  bool grad_mode = false;
  bool inference_mode = false;
  bool cpu_autocast = false, cuda_autocast = false;

  static ThreadSwitches now();
  void restore() const;
  friend bool operator==(const ThreadSwitches&, const ThreadSwitches&) = default;
};

}  // namespace tandem::tracing
