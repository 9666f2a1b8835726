#include "tracing/trace.h"

#include "base/error.h"
#include "libtorch/error_texts.h"
#include "libtorch/thread_state.h"
#include "tracing/hooks/hooks.h"
#include "tracing/inputs/redirect_edges.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::tracing {

Trace::Trace(const detail::Flat& arguments, InputOptions options,
             std::span<const Replacement> replacements)
    : recording_(&inputs_),
      inputs_(recording_, std::move(options)),
      state_((register_hooks(), recording_)) {
  arguments_ = inputs_.add_arguments(arguments, replacements);
}

void Trace::run(const detail::FlatFunction& function) {
  const libtorch::ThreadState before = libtorch::ThreadState::now();
  try {
    recording_.lines().set_outermost(__builtin_frame_address(0));
    {
      const DataSizes::UsersCode running(recording_.data_sizes().get());
      results_ = function(arguments_);
    }
    recording_.lines().set_outermost(nullptr);  // what is recorded from here on, Tandem calls
    if (!inputs_.leave()) {
      TANDEM_UNSUPPORTED("trace",
                         "a custom autograd function marks a closed-over tensor as dirty that the "
                         "function has written before",
                         "\n  remedy: pass the tensor to the compiled function as an argument");
    }
    inputs_.require_not_refused();
    if (const std::optional<std::string> name = inputs_.put_back_gradients())
      throw UnsupportedError("trace", gradient_refusal(*name, {}));
  } catch (const UnsupportedError&) {
    before.apply();
    inputs_.leave();
    throw;
  } catch (const c10::Error& error) {
    before.apply();
    inputs_.leave();
    inputs_.require_not_refused();
    explain(error);
  } catch (...) {
    before.apply();
    inputs_.leave();
    inputs_.require_not_refused();
    throw;
  }
  const libtorch::ThreadState after = libtorch::ThreadState::now();
  const bool leaves_other =
      after.inference_mode != before.inference_mode || after.autocast() != before.autocast();
  if (after.grad_mode != before.grad_mode) grad_mode_after_ = after.grad_mode;
  if (leaves_other || grad_mode_after_) before.apply();
  if (leaves_other) {
    TANDEM_UNSUPPORTED("trace", "the function leaves autocast changed behind it",
                       "\n  remedy: switch it back before the function ends");
  }
  for (at::Tensor& result : results_.tensors) {
    if (!result.defined() || is_traced(result)) continue;
    require_unwritten(result);
    result = inputs_.stand_in(result);
  }
  for (const at::Tensor& result : results_.tensors) {
    if (result.defined()) keep_history(result);
  }
  redirect_edges(inputs_,
                 std::span<const at::Tensor>(results_.tensors.data(), results_.tensors.size()));
}

/// Inside its handler: throws the error again, or what it means.
void Trace::explain(const c10::Error& error) const {
  const std::string text = error.what_without_backtrace();
  const std::optional<libtorch::ErrorMeaning> meaning = libtorch::meaning_of(text);
  if (!meaning) throw;
  switch (*meaning) {
    case libtorch::ErrorMeaning::ReadsData:
      TANDEM_UNSUPPORTED(
          "trace",
          "the function reads the data of a tensor (data_ptr, accessor, printing), "
          "which a trace does not have",
          where(),
          "\n  remedy:   read it outside the compiled function, or compute with tensor ops");
    case libtorch::ErrorMeaning::UnfollowedWrite:
      TANDEM_UNSUPPORTED(
          "trace", "an op writes or returns one of its arguments and has no functional form",
          where(),
          "\n  remedy:   register an op that returns a new tensor, or call it outside the "
          "compiled function");
    case libtorch::ErrorMeaning::UnfollowedView:
      TANDEM_UNSUPPORTED(
          "trace", "a view is written that as_strided() took of another view", where(),
          "\n  remedy:   take it of the tensor that owns the memory, or write a copy (clone())");
    case libtorch::ErrorMeaning::OldMemory:
      TANDEM_UNSUPPORTED(
          "trace",
          "a view or alias is written whose tensor has got other memory by set_() since it was "
          "taken",
          where(), "\n  remedy:   write it before set_(), or write a copy (clone())");
    case libtorch::ErrorMeaning::GrowingView:
      TANDEM_UNSUPPORTED(
          "trace", "resize_() makes a tensor grow while a view or alias shows its memory", where(),
          "\n  remedy:   take the view after resize_(), or of a copy (clone())");
    case libtorch::ErrorMeaning::KernelRefuses:
    case libtorch::ErrorMeaning::InferenceView:
      throw;
  }
  throw;
}

/// A view that nobody else holds was made by a custom function, of a real tensor. That tensor does
/// not have what was written to the stand-in before.
void Trace::require_unwritten(const at::Tensor& result) const {
  if (!result.is_view() || result.use_count() > 1 || !result.has_storage()) return;
  if (const StandIn* written = inputs_.written_on_memory_of(result)) {
    TANDEM_UNSUPPORTED("trace",
                       "a custom autograd function returns a view of a closed-over tensor that the "
                       "function has written before",
                       "\n  value:  ", name_of(*written),
                       "\n  remedy: pass the tensor to the compiled function as an argument");
  }
}

/// When the version of its base moves, a view makes its grad_fn anew by taking the view again. If
/// the base was transposed in place since, that gives another view or none at all. The grad_fn that
/// the view has stays right as long as only sizes and strides of the base were changed.
void Trace::keep_history(const at::Tensor& result) const {
  if (!result.is_view() || !result.requires_grad()) return;
  const at::Tensor base(result._base());
  const auto wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(base);
  auto* meta = torch::autograd::impl::get_view_autograd_meta(result);
  if (!wrapper->has_metadata_mutation() || meta->get_attr_version() == result._version()) return;
  if (wrapper->has_data_mutation()) {
    TANDEM_UNSUPPORTED("trace",
                       "a result is a view of a tensor that was reshaped and written in place "
                       "after the view was taken",
                       base::detail_line("at", line_of(base)), "\n  value:  ", tensor_text(result),
                       "\n  remedy: take the view again after the last change, or return a copy "
                       "of it (clone())");
  }
  meta->set_attr_version(result._version());
}

void Trace::set_results(std::vector<at::Tensor> results) {
  results_ = {};
  results_.tensors.assign(results.begin(), results.end());
}

std::string Trace::where() const {
  const SourceLines& lines = recording_.lines();
  return base::detail_line(lines.last_threw() ? "at" : "after", ir::to_string(lines.last()), 10);
}

std::string Trace::line_of(const at::Tensor& tensor) const {
  const ir::Graph& graph = recording_.graph();
  const ir::ValueId value = current_value(tensor);
  const ir::NodeId node = value == ir::kNoValue ? ir::kNoNode : graph.value(value).producer();
  return node == ir::kNoNode ? std::string() : ir::to_string(graph.node(node).location());
}

bool is_tracing() { return current_recording() != nullptr; }

}  // namespace tandem::tracing
