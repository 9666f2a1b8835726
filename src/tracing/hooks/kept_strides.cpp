#include "tracing/hooks/kept_strides.h"

#include "shapes/reach.h"
#include "tracing/hooks/write_checks.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"

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

at::Tensor laid_out(const at::Tensor& value, at::IntArrayRef strides, bool is_dense) {
  if (same_strides(value.sizes(), value.strides(), strides)) return value;
  return is_dense ? in_order_of(value, strides) : with_gaps(value, strides);
}

/// What an op is about to write, and how it lies in memory.
struct Strides {
  at::Tensor written;
  std::vector<int64_t> sizes, strides;
  bool is_dense = false;
};

}  // namespace

bool writes_one_tensor(const c10::OperatorHandle& op) {
  return !is_in_place_view(op) && (is_in_place(op) || has_one_out_argument(op));
}

std::any note_strides(BoxedCall& call) {
  const bool fills_out = has_one_out_argument(call.op);
  const c10::IValue& operand = fills_out ? call.stack.back() : call.operand(0);
  if (!operand.isTensor()) return {};
  const at::Tensor& written = operand.toTensor();
  if (!is_traced(written) || !functionalization::impl::isFunctionalTensor(written) ||
      written.numel() == 0) {
    return {};
  }
  call.recording->set_writing(true);
  return Strides{written, written.sizes().vec(), written.strides().vec(),
                 written.is_non_overlapping_and_dense()};
}

void restore_strides(BoxedCall& call, std::any& left) {
  const auto* before = std::any_cast<Strides>(&left);
  if (before == nullptr) return;
  const auto& [written, sizes, strides, is_dense] = *before;
  if (written.sizes() != at::IntArrayRef(sizes)) {
    // An argument to be filled is resized if it does not fit; the out-of-place form of an in-place
    // op has broadcast what cannot grow.
    TORCH_CHECK(has_one_out_argument(call.op), "output with shape ", at::IntArrayRef(sizes),
                " doesn't match the broadcast shape ", written.sizes());
    return;
  }
  if (same_strides(sizes, written.strides(), strides)) return;
  const auto* wrapper = functionalization::impl::unsafeGetFunctionalWrapper(written);
  at::Tensor value;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    at::AutoDispatchSkipFunctionalize inside;
    value = laid_out(wrapper->value(), strides, is_dense);
  }
  functionalization::impl::replace_(written, value);
  functionalization::impl::commit_update(written);
  functionalization::impl::sync(written);
}

at::Tensor laid_out_like(const at::Tensor& value, const at::Tensor& like) {
  return laid_out(value, like.strides(), like.is_non_overlapping_and_dense());
}

std::any note_order_of_windows(BoxedCall& call) {
  if (call.recording == nullptr || !call.recording->is_writing()) return {};
  std::vector<int64_t> strides = call.operand(0).toTensor().strides().vec();
  strides.pop_back();  // within a window
  return strides;
}

void restore_order_of_windows(BoxedCall& call, std::any& left) {
  const auto* strides = std::any_cast<std::vector<int64_t>>(&left);
  c10::IValue& whole = call.stack.back();
  if (strides == nullptr || strides->size() != static_cast<size_t>(whole.toTensor().dim())) return;
  whole = in_order_of(whole.toTensor(), *strides);
}

}  // namespace tandem::tracing
