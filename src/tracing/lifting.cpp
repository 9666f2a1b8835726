#include "tracing/lifting.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/memory/shares_memory.h"
#include "ops/metadata/meta_tensor.h"
#include "tracing/ambient.h"
#include "tracing/det_history.h"
#include "tracing/draws.h"
#include "tracing/kept_strides.h"
#include "tracing/operand_text.h"
#include "tracing/recording.h"
#include "tracing/traced_tensor.h"
#include "tracing/users_op.h"
#include "tracing/write_checks.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/fill.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <string_view>

namespace tandem::tracing {
namespace {

bool is_outside_tensor(const at::Tensor& tensor) {
  // A wrapped number is a Scalar in disguise, a meta tensor a shape probe.
  return tensor.defined() && !is_traced(tensor) && !tensor.is_meta() &&
         !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

bool resizes(const c10::OperatorHandle& op) {
  static const auto resize = c10::Dispatcher::singleton().findSchemaOrThrow("aten::resize_", "");
  static const auto resize_as =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::resize_as_", "");
  return op == resize || op == resize_as;
}

void lift(Recording& recording, c10::IValue& value) {
  if (value.isTensor()) {
    if (is_outside_tensor(value.toTensor())) value = recording.stand_in(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) {
      if (is_outside_tensor(tensor)) tensor = recording.stand_in(tensor);
    }
    value = c10::List<at::Tensor>(tensors);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor && is_outside_tensor(*tensor)
                            ? std::optional<at::Tensor>(recording.stand_in(*tensor))
                            : tensor);
    }
    value = std::move(tensors);
  }
}

/// Tensors that an in-place op on lists is about to write. Its kernel counts their versions, one
/// write each; functionalization replaces the kernel and counts none.
std::vector<at::Tensor> written_list(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                     size_t first) {
  const std::string& name = op.schema().name();
  if (!name.starts_with("aten::_foreach_") || !name.ends_with('_')) return {};
  return stack[first].toTensorVector();
}

/// Eager writes one after the other; functionalization reads all of them before it writes any.
void check_written_once(const c10::OperatorHandle& op, const std::vector<at::Tensor>& written) {
  for (size_t i = 1; i < written.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!is_traced(written[i]) || !is_traced(written[j]) ||
          !written[i].storage().is_alias_of(written[j].storage()) ||
          !shapes::may_overlap(ops::place_of(written[i]), ops::place_of(written[j]))) {
        continue;
      }
      TANDEM_UNSUPPORTED("trace", op.schema().name(), " writes the same memory twice: tensors ", j,
                         " and ", i, " of its list overlap",
                         "\n  value:  ", tensor_text(written[i]),
                         "\n  remedy: leave one of them out, or write them one after the other");
    }
  }
}

at::Tensor like_on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor made(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

/// An op checks dtype and device of the tensors that it is to fill. Functionalization computes a
/// new tensor and casts it, so that an error of eager's would be lost.
void check_out_arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                         size_t first) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  if (arguments.empty() || !arguments.back().is_out() ||
      !op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    return;
  }
  const ops::KernelsOnly kernels_only;
  torch::jit::Stack on_meta;
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      on_meta.emplace_back(like_on_meta(stack[i].toTensor()));
    } else if (stack[i].isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : stack[i].toTensorVector())
        list.push_back(like_on_meta(tensor));
      on_meta.emplace_back(std::move(list));
    } else {
      on_meta.push_back(stack[i]);
    }
  }
  op.callBoxed(on_meta);
}

/// Inside an inference region functionalization cannot make views of tensors that are none of the
/// region's; in eager they are ordinary tensors, too, that remember where they were made.
void call_in_inference_mode(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t first) {
  const torch::jit::Stack arguments(stack.begin() + static_cast<int64_t>(first), stack.end());
  try {
    op.callBoxed(stack);
    return;
  } catch (const c10::Error& error) {
    if (std::string_view(error.what_without_backtrace())
            .find("version_counter for inference tensor") == std::string_view::npos) {
      throw;
    }
  }
  stack.resize(first);
  stack.insert(stack.end(), arguments.begin(), arguments.end());
  const NormalMode normal;
  op.callBoxed(stack);
  const auto mark = [](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_view()) return;
    torch::autograd::impl::get_view_autograd_meta(tensor)->set_creation_meta(
        torch::autograd::CreationMeta::INFERENCE_MODE);
  };
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor()) mark(stack[i].toTensor());
    if (!stack[i].isTensorList()) continue;
    for (const at::Tensor& tensor : stack[i].toTensorVector()) mark(tensor);
  }
}

/// Tells the recording that an in-place op is under way.
class Writing {
 public:
  Writing(Recording& recording, bool writes)
      : recording_(recording), before_(recording.is_writing()) {
    if (writes) recording.set_writing(true);
  }
  ~Writing() { recording_.set_writing(before_); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  Recording& recording_;
  const bool before_;
};

/// as_strided() counts from the beginning of the memory. What has been written since has memory of
/// its own: where the view starts with the tensor, it is better left unsaid.
void leave_out_offset(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t first) {
  if (op.schema().name() != "aten::as_strided") return;
  c10::IValue& offset = stack.back();
  if (offset.isInt() && offset.toInt() == stack[first].toTensor().storage_offset()) offset = {};
}

/// fill_diagonal_() of a matrix reaches its diagonal by strides, which the value of a tensor that
/// has been written, or that is not contiguous, need not have.
bool fill_diagonal(const c10::OperatorHandle& op, torch::jit::Stack& stack, size_t first) {
  if (op.schema().name() != "aten::fill_diagonal_") return false;
  const at::Tensor matrix = stack[first].toTensor();
  const bool raises = matrix.is_leaf() && matrix.requires_grad() && c10::GradMode::is_enabled();
  if (matrix.dim() != 2 || stack[first + 2].toBool() || raises) return false;
  matrix.diagonal().fill_(stack[first + 1].toScalar());
  stack.resize(first);
  stack.emplace_back(matrix);
  return true;
}

void lift_and_call(Recording& recording, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  recording.before_op();
  if (recording.host_tensors().make(op, *stack)) return;
  // Gives its operand back. Functionalization has its own use for it, and older ones refuse others.
  if (op.schema().name() == "aten::lift") return;
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor resized = resizes(op) ? (*stack)[first].toTensor() : at::Tensor();
  for (size_t i = first; i < stack->size(); ++i) lift(recording, (*stack)[i]);
  if (is_bernoulli(op)) {
    // Called by the function itself, not made of an in-place call: its draws are in order.
    (*stack)[first] = (*stack)[first].toTensor().contiguous();
  }
  if (is_whole(op)) {
    call_whole(op, stack);
    return;
  }
  leave_out_offset(op, *stack, first);
  follow_writes(op);
  check_write(recording, op, *stack, first);
  check_out_arguments(op, *stack, first);
  const std::vector<at::Tensor> written = written_list(op, *stack, first);
  check_written_once(op, written);
  const KeptStrides strides(op, *stack, first);
  const DetHistory det(op, *stack, first);
  const Writing writing(recording, strides.is_write());
  if (c10::InferenceMode::is_enabled()) {
    call_in_inference_mode(op, *stack, first);
  } else if (!fill_diagonal(op, *stack, first)) {
    op.callBoxed(*stack);
  }
  strides.restore();
  det.give(*stack);
  if (op.schema().is_mutable()) recording.after_write();
  for (const at::Tensor& tensor : written) tensor.unsafeGetTensorImpl()->bump_version();
  if (resized.defined() && !is_traced(resized)) recording.host_tensors().follow_resize(resized);
}

}  // namespace

void lift_arguments(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Recording* recording = current_recording();
  if (recording && is_users_composite(op)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKeySet{libtorch::kLiftKey});
  if (recording == nullptr) {
    op.callBoxed(*stack);
    return;
  }
  // The topmost entry of the dispatcher: the frames above are those of the user's call.
  OpLine line(recording->lines(), {__builtin_frame_address(0), __builtin_return_address(0)},
              recording->phase());
  try {
    lift_and_call(*recording, op, stack);
  } catch (const UserError& error) {
    throw base::with_detail(error, "at", ir::to_string(recording->lines().current()));
  } catch (const UnsupportedError& error) {
    throw base::with_detail(error, "at", ir::to_string(recording->lines().current()));
  }
}

}  // namespace tandem::tracing
