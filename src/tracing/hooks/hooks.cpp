#include "tracing/hooks/hooks.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "libtorch/error_texts.h"
#include "libtorch/version.h"
#include "ops/op_table.h"
#include "tracing/gradients/trace_engine.h"
#include "tracing/hooks/interception.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/recorder.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tandem::tracing {
namespace {

/// An op that is under way within another one writes what that one writes.
class KeepWriting {
 public:
  explicit KeepWriting(Recording& recording)
      : recording_(recording), before_(recording.is_writing()) {}
  ~KeepWriting() {
    recording_.set_writing(before_);
    recording_.set_multiplies_in_place(false);
  }
  KeepWriting(const KeepWriting&) = delete;
  KeepWriting& operator=(const KeepWriting&) = delete;

 private:
  Recording& recording_;
  const bool before_;
};

void check_libtorch() {
  const std::string running = libtorch::running_version(), built = libtorch::built_version();
  TANDEM_REQUIRE(running.empty() || running.starts_with(built), "trace",
                 "this program runs libtorch ", running, ", but Tandem was built for ", built,
                 "\n  remedy: build Tandem against the libtorch of the program (TORCH_DIR=...)");
}

void check_keys_are_free() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (c10::DispatchKey key : {libtorch::kRecordKey, libtorch::kLiftKey}) {
    TANDEM_REQUIRE(!dispatcher.hasBackendFallbackForDispatchKey(key), "trace",
                   "another library of this process uses the dispatch key ", c10::toString(key),
                   " that Tandem records with\n  remedy: do not load both into one process");
  }
}

/// Registrations live as long as the process: taking them back at exit would race with libtorch's
/// own end.
torch::Library& library(const char* name, c10::DispatchKey key) {
  static auto* const kept = new std::vector<std::unique_ptr<torch::Library>>;
  kept->push_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, name, key, __FILE__, __LINE__));
  return *kept->back();
}

/// Functionalization by itself, with a write that was pending: on what the function never sees.
bool catches_up(const BoxedCall& call) {
  bool any = false;
  for (const c10::IValue& operand : call.operands()) {
    for_each_tensor(operand,
                    [&](const at::Tensor& tensor) { any = any || as_traced(tensor) != nullptr; });
  }
  return any;
}

/// `at::size(x, 0)`: a number that follows from sizes goes to whoever calls.
void note_question(const BoxedCall& call) {
  const std::shared_ptr<DataSizes>& sizes = call.recording->data_sizes();
  if (!sizes || !sizes->any()) return;
  const std::vector<c10::Argument>& returns = call.op.schema().returns();
  const auto is_number = [](const c10::Argument& result) {
    return result.real_type()->isSubtypeOf(c10::NumberType::get()) ||
           result.real_type()->isSubtypeOf(c10::BoolType::get());
  };
  if (returns.empty() || !std::ranges::all_of(returns, is_number)) return;
  for (const c10::IValue& operand : call.operands()) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      if (!at::functionalization::impl::isFunctionalTensor(tensor)) return;
      if (const TracedTensor* traced =
              as_traced(at::functionalization::impl::from_functional_tensor(tensor))) {
        sizes->note_read_by_op(traced->value());
      }
    });
  }
}

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
  const DataSizes::WithinOp within(recording->data_sizes().get());
  if (recording->data_sizes() && recording->data_sizes()->any()) {
    for (size_t i = 0; i < call.operands().size(); ++i) take_numbers(call.operand(i));
  }
  const bool by_user = !catches_up(call);
  if (by_user) recording->note_call(op);
  pass(rows.at(Stop::FirstSight), call, [&](BoxedCall&) {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKeySet{libtorch::kLiftKey});
    const OpLine line(recording->lines(), entry, recording->phase());
    const KeepWriting writing(*recording);
    if (by_user) recording->note_user_call(op, call.operands());
    if (by_user) note_question(call);
    try {
      pass(rows.at(Stop::Lifting), call, call_op);
    } catch (const UserError& error) {
      throw base::with_detail(error, "at", ir::to_string(recording->lines().current()));
    } catch (const UnsupportedError& error) {
      const UnsupportedError at =
          base::with_detail(error, "at", ir::to_string(recording->lines().current()));
      if (recording->has_inputs()) recording->inputs().note_refusal(at);
      throw at;
    } catch (const c10::Error& error) {
      if (libtorch::meaning_of(error.what_without_backtrace()) !=
          libtorch::ErrorMeaning::UnfollowedWrite)
        throw;
      TANDEM_UNSUPPORTED("trace", ir::op_text(op),
                         " writes or returns one of its arguments and has no functional form",
                         base::detail_line("at", ir::to_string(recording->lines().current())),
                         "\n  schema: ", op.schema(),
                         "\n  remedy: register an op that returns a new tensor, or call it outside "
                         "the compiled function");
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

void functionalize_op(const std::string& name) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::unordered_set<std::string>;
  const std::lock_guard lock(*mutex);
  if (!known->insert(name).second) return;
  const size_t colons = name.find("::");
  library(name.substr(0, colons).c_str(), c10::DispatchKey::Functionalize)
      .impl(name.substr(colons + 2).c_str(),
            torch::CppFunction::makeFromBoxedFunction<&functionalize>());
}

void register_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    check_libtorch();
    check_keys_are_free();
    library("_", libtorch::kRecordKey)
        .fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
    library("_", libtorch::kLiftKey).fallback(torch::CppFunction::makeFromBoxedFunction<&lift>());
    for (const Interception& row : interceptions()) {
      if (row.stop != Stop::Functionalization || row.fits != nullptr) continue;
      for (std::string_view op : op_names(row)) functionalize_op(std::string(op));
    }
    ops::register_missing_meta_kernels();
  });
  put_engine_before();  // each time: who had put another one there may have taken it back
}

}  // namespace tandem::tracing
