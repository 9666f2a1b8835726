#include "tracing/hooks/hooks.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "tracing/hooks/interception.h"
#include "tracing/recording/recorder.h"
#include "tracing/recording/recording.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tandem::tracing {
namespace {

/// An op that is under way within another one writes what that one writes.
class KeepWriting {
 public:
  explicit KeepWriting(Recording& recording)
      : recording_(recording), before_(recording.is_writing()) {}
  ~KeepWriting() { recording_.set_writing(before_); }
  KeepWriting(const KeepWriting&) = delete;
  KeepWriting& operator=(const KeepWriting&) = delete;

 private:
  Recording& recording_;
  const bool before_;
};

void call_op(BoxedCall& call) { call.op.callBoxed(call.stack); }

}  // namespace

void lift(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Recording* recording = current_recording();
  if (recording == nullptr) {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKeySet{libtorch::kLiftKey});
    op.callBoxed(*stack);
    return;
  }
  // The topmost entry of the dispatcher: the frames above are those of the user's call.
  const EntryFrame entry{__builtin_frame_address(0), __builtin_return_address(0)};
  const OpRows& rows = rows_of(op);
  BoxedCall call(op, *stack, recording);
  pass(rows.at(Stop::FirstSight), call, [&](BoxedCall&) {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKeySet{libtorch::kLiftKey});
    const OpLine line(recording->lines(), entry, recording->phase());
    const KeepWriting writing(*recording);
    try {
      pass(rows.at(Stop::Lifting), call, call_op);
    } catch (const UserError& error) {
      throw base::with_detail(error, "at", ir::to_string(recording->lines().current()));
    } catch (const UnsupportedError& error) {
      throw base::with_detail(error, "at", ir::to_string(recording->lines().current()));
    }
  });
}

void functionalize(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  BoxedCall call(op, *stack, current_recording());
  pass(rows_of(op).at(Stop::Functionalization), call, [](BoxedCall& refused) {
    TORCH_CHECK(false,
                "We only support functionalizing operators whose outputs do not have alias "
                "information: ",
                refused.op.schema());
  });
}

void record(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const OpRows& rows = rows_of(op);
  BoxedCall call(op, *stack, current_recording());
  pass(rows.at(Stop::BeforeRecording), call, [&](BoxedCall&) {
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::DispatchKeySet{libtorch::kRecordKey} |
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    pass(rows.at(Stop::Recording), call, [](BoxedCall& here) { record_call(here, here.op); });
  });
}

}  // namespace tandem::tracing
