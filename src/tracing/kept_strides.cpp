#include "tracing/kept_strides.h"

#include "shapes/reach.h"
#include "tracing/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_scatter.h>
#include <ATen/ops/contiguous.h>
#include <ATen/ops/new_zeros.h>
#include <ATen/ops/permute.h>

#include <algorithm>
#include <numeric>

namespace tandem::tracing {
namespace {

namespace functionalization = at::functionalization;

/// An op that is there to change sizes or strides: `t_`, `resize_`, `set_`.
bool is_in_place_view(const c10::OperatorHandle& op) {
  const auto tags = op.getTags();
  return std::find(tags.begin(), tags.end(), at::Tag::inplace_view) != tags.end();
}

bool has_one_out_argument(const c10::OperatorHandle& op) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  return std::ranges::count_if(arguments, &c10::Argument::is_out) == 1 && arguments.back().is_out();
}

/// Of a dimension with one element the stride means nothing.
bool same_strides(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] != 1 && a[dim] != b[dim]) return false;
  }
  return true;
}

/// The memory without gaps, its dimensions in another order.
at::Tensor in_order_of(const at::Tensor& value, at::IntArrayRef strides) {
  std::vector<int64_t> order(strides.size()), inverse(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return value.permute(order).contiguous().permute(inverse);
}

at::Tensor with_gaps(const at::Tensor& value, at::IntArrayRef strides) {
  const int64_t span = shapes::reach(value.sizes(), strides);
  const at::Tensor memory =
      at::as_strided_scatter(value.new_zeros({span}), value, value.sizes(), strides, 0);
  return memory.as_strided(value.sizes(), strides, 0);
}

}  // namespace

KeptStrides::KeptStrides(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                         size_t first) {
  fills_out_ = has_one_out_argument(op);
  const size_t at = fills_out_ ? stack.size() - 1 : first;
  if (!(fills_out_ || op.schema().name().ends_with('_')) || !stack[at].isTensor() ||
      is_in_place_view(op)) {
    return;
  }
  const at::Tensor& written = stack[at].toTensor();
  if (!is_traced(written) || !functionalization::impl::isFunctionalTensor(written) ||
      written.numel() == 0) {
    return;
  }
  written_ = written;
  sizes_ = written.sizes().vec();
  strides_ = written.strides().vec();
  is_dense_ = written.is_non_overlapping_and_dense();
}

void KeptStrides::restore() const {
  if (!written_.defined()) return;
  // An argument to be filled is resized if it does not fit.
  if (fills_out_ && written_.sizes() != at::IntArrayRef(sizes_)) return;
  // The out-of-place form has broadcast what cannot grow.
  TORCH_CHECK(written_.sizes() == at::IntArrayRef(sizes_), "output with shape ",
              at::IntArrayRef(sizes_), " doesn't match the broadcast shape ", written_.sizes());
  if (same_strides(sizes_, written_.strides(), strides_)) return;
  const auto* wrapper = functionalization::impl::unsafeGetFunctionalWrapper(written_);
  at::Tensor value;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    at::AutoDispatchSkipFunctionalize inside;
    const at::Tensor& now = wrapper->value();
    value = is_dense_ ? in_order_of(now, strides_) : with_gaps(now, strides_);
  }
  functionalization::impl::replace_(written_, value);
  functionalization::impl::commit_update(written_);
  functionalization::impl::sync(written_);
}

}  // namespace tandem::tracing
