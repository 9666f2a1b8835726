#include "tracing/write_checks.h"

#include "base/error.h"
#include "ops/memory/shares_memory.h"
#include "tracing/operand_text.h"
#include "tracing/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::tracing {
namespace {

bool has_tag(const c10::OperatorHandle& op, at::Tag tag) {
  const auto tags = op.getTags();
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

bool is_same_view(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype();
}

/// Where eager's own check is sure, and says so: both are dense, and they share a part.
bool overlaps_in_part(const at::Tensor& written, const at::Tensor& read) {
  if (written.is_same(read) || !written.storage().is_alias_of(read.storage())) return false;
  if (!written.is_non_overlapping_and_dense() || !read.is_non_overlapping_and_dense()) return false;
  return !is_same_view(written, read) &&
         shapes::may_overlap(ops::place_of(written), ops::place_of(read));
}

/// The same for an op that does not even read what it writes, element by element.
bool overlaps(const at::Tensor& written, const at::Tensor& read) {
  if (written.is_same(read) || overlaps_in_part(written, read)) return true;
  return written.storage().is_alias_of(read.storage()) && is_same_view(written, read) &&
         written.is_non_overlapping_and_dense();
}

using Overlaps = bool (*)(const at::Tensor& written, const at::Tensor& read);

void check_overlap(const at::Tensor& written, const torch::jit::Stack& stack, size_t first,
                   Overlaps overlap) {
  for (size_t i = first + 1; i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    const at::Tensor& read = stack[i].toTensor();
    TORCH_CHECK(!read.defined() || !is_traced(read) || !overlap(written, read),
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location. Please clone() the tensor before "
                "performing the operation.");
  }
}

/// In a trace, autograd follows a write through a view by taking the view of the base again.
void check_base(const at::Tensor& written) {
  if (!written.is_view()) return;
  const at::Tensor base(written._base());
  if (!is_traced(base) || !(written.requires_grad() || base.requires_grad())) return;
  if (!at::functionalization::impl::unsafeGetFunctionalWrapper(base)->has_metadata_mutation())
    return;
  bool same = false;
  try {
    const auto& info = torch::autograd::impl::get_view_autograd_meta(written)->get_backward_view();
    same = info.has_view_fn() && is_same_view(info.view_fn()(base), written);
  } catch (const c10::Error&) {
    // The base has no such view any more.
  }
  if (same) return;
  TANDEM_UNSUPPORTED("trace",
                     "a view is written whose base was reshaped in place (t_, squeeze_, ...) after "
                     "the view was taken",
                     "\n  value:  ", tensor_text(written),
                     "\n  remedy: take the view again after the base was reshaped, or use the "
                     "out-of-place form");
}

bool will_require_grad(const torch::jit::Stack& stack, size_t first) {
  for (size_t i = first; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().requires_grad())
      return true;
  }
  return false;
}

}  // namespace

void check_write(const Recording& recording, const c10::OperatorHandle& op,
                 const torch::jit::Stack& stack, size_t first) {
  if (!op.schema().name().ends_with('_') || !stack[first].isTensor()) return;
  const at::Tensor& written = stack[first].toTensor();
  if (!is_traced(written)) return;
  if (c10::GradMode::is_enabled()) {
    const at::Tensor* real = recording.real_of(written);
    // Of one that has its history from here, the first write was looked at.
    if (real && real->is_view() && !current_recording()->lent_histories().is_lent(*real))
      torch::autograd::check_inplace(*real, will_require_grad(stack, first));
  }
  check_base(written);
  if (has_tag(op, at::Tag::pointwise) || op.schema().name() == "aten::copy_") {
    at::assert_no_internal_overlap(written);
    check_overlap(written, stack, first, overlaps_in_part);
  } else if (op.schema().name() == "aten::index_put_") {
    check_overlap(written, stack, first, overlaps);
  }
}

}  // namespace tandem::tracing
