#include "tracing/recording/tracing_state.h"

#include "libtorch/version.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace tandem::tracing {
namespace {

const c10::DispatchKeySet kTraceKeys{libtorch::kRecordKey, libtorch::kLiftKey,
                                     c10::DispatchKey::Functionalize};

}  // namespace

WithoutInferenceMode::WithoutInferenceMode() {
  if (!c10::InferenceMode::is_enabled()) return;
  guard_.emplace(false);
  c10::GradMode::set_enabled(false);
}

TracingState::TracingState(Recording& recording)
    : scope_(&recording),
      reapply_views_(true),  // otherwise `view_copy` is recorded where the program said `view`
      keys_(kTraceKeys),
      multithreading_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      // Saved-tensor hooks are for what calls keep; formulas of a trace save tensors without data.
      hooks_wait_(at::SavedTensorDefaultHooks::set_tracing(true)) {
  // The backward must run in this thread, where the keys are.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

TracingState::~TracingState() {
  at::SavedTensorDefaultHooks::set_tracing(hooks_wait_);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(multithreading_);
  // Casts of stand-ins must not survive in the thread's weight cache.
  at::autocast::clear_cache();
}

OutsideTrace::OutsideTrace() : keys_(kTraceKeys) {}

}  // namespace tandem::tracing
