#include "tracing/hooks/view_inverses.h"

#include "libtorch/view_metas.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/as_strided_scatter.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::tracing {
namespace {

namespace functionalization = at::functionalization;
using libtorch::ViewOp;

/// Offsets count from the beginning of the memory that came in.
int64_t before_memory_of(const at::Tensor& base) {
  const TracedTensor* traced = as_traced(base);
  Recording* recording = current_recording();
  if (traced == nullptr || recording == nullptr || !recording->has_inputs()) return 0;
  return recording->inputs().offset_of_memory(traced->value());
}

/// Several views, one after the other, as one with an exact inverse.
class InPlace : public functionalization::ViewMeta {
 public:
  explicit InPlace(std::vector<libtorch::ViewMetaPtr> views)
      : ViewMeta(/*has_symbolic_inputs=*/false), views_(std::move(views)) {}

  at::Tensor forward(const at::Tensor& base) override {
    at::Tensor view = base;
    for (const libtorch::ViewMetaPtr& one : views_) view = one->forward(view);
    return view;
  }

  at::Tensor reverse(const at::Tensor& base, const at::Tensor& mutated_view) override {
    if (views_.size() == 1 && libtorch::view_op_of(*views_[0]) == ViewOp::Expand &&
        mutated_view.numel() == base.numel()) {
      at::Tensor whole = mutated_view;
      while (whole.dim() > base.dim()) whole = whole.select(0, 0);
      return whole;
    }
    // Where several elements lie at one place, this is refused when it is recorded.
    const at::Tensor view = forward(base);
    std::optional<int64_t> offset;
    if (view.storage_offset() != base.storage_offset())
      offset = view.storage_offset() + before_memory_of(base);
    return at::as_strided_scatter(base, mutated_view, view.sizes(), view.strides(), offset);
  }

 private:
  const std::vector<libtorch::ViewMetaPtr> views_;
};

/// From the first such view on: what is written may be a part of it in which every element has a
/// place of its own. What reads numbers otherwise stays a view by itself: strides do not tell of
/// it.
void keep_places_of(const at::Tensor& written) {
  if (!functionalization::impl::isFunctionalTensor(written)) return;
  auto* wrapper = functionalization::impl::unsafeGetFunctionalWrapper(written);
  std::vector<libtorch::ViewMetaPtr>& views = libtorch::views_of(*wrapper);
  std::vector<libtorch::ViewMetaPtr> kept, together;
  const auto put_together = [&] {
    if (!together.empty()) kept.push_back(std::make_shared<InPlace>(std::exchange(together, {})));
  };
  for (const libtorch::ViewMetaPtr& view : views) {
    const ViewOp op = libtorch::view_op_of(*view);
    if (op == ViewOp::ReadsOtherwise) put_together();
    const bool exact =
        op == ViewOp::Expand || op == ViewOp::Unfold || (op == ViewOp::Other && !together.empty());
    (exact ? together : kept).push_back(view);
  }
  put_together();
  views = std::move(kept);
}

}  // namespace

std::any keep_places(BoxedCall& call) {
  const std::vector<c10::Argument>& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite())
      for_each_tensor(call.operand(i), keep_places_of);
  }
  return {};
}

}  // namespace tandem::tracing
