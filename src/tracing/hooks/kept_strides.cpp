#include "tracing/hooks/kept_strides.h"

#include "shapes/reach.h"
#include "tracing/hooks/write_checks.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_scatter.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/contiguous.h>
#include <ATen/ops/new_zeros.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/permute.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/t.h>
#include <ATen/ops/view.h>

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

/// Dimensions as they lie in memory, and the way back.
struct Order {
  explicit Order(at::IntArrayRef strides) : dims(strides.size()), inverse(strides.size()) {
    std::iota(dims.begin(), dims.end(), 0);
    std::ranges::stable_sort(dims, [&](int64_t a, int64_t b) {
      return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < dims.size(); ++i) {
      inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
    }
  }
  std::vector<int64_t> dims, inverse;
};

/// The memory without gaps, its dimensions in another order.
at::Tensor in_order_of(const at::Tensor& value, at::IntArrayRef strides) {
  const Order order(strides);
  return value.permute(order.dims).contiguous().permute(order.inverse);
}

/// So many numbers, drawn one after the other: into memory that does not lie in rows.
at::Tensor drawn_one_by_one(const BoxedCall& call, int64_t count) {
  const auto draw = [&](const at::Tensor& into) {
    return at::normal_functional(into, call.operand(1).toDouble(), call.operand(2).toDouble(),
                                 call.operand(3).toOptional<at::Generator>());
  };
  const at::Tensor& like = call.operand(0).toTensor();
  if (count == 1) return draw(like.new_zeros({1}));
  if (count % 2 == 1) {
    const at::Tensor first = drawn_one_by_one(call, count - 1);
    return at::cat({first, drawn_one_by_one(call, 1)});
  }
  return draw(like.new_zeros({2, count / 2}).t()).t().reshape({count});
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

bool draw_into_gaps(BoxedCall& call) {
  constexpr int64_t kDrawnAtOnce = 16;
  const at::Tensor written = call.operand(0).toTensor();
  const int64_t numbers = written.numel() * (written.is_complex() ? 2 : 1);
  if (numbers < kDrawnAtOnce || !written.is_cpu() || written.is_contiguous() ||
      written.is_non_overlapping_and_dense()) {
    return false;
  }
  const Order order(written.strides());
  std::vector<int64_t> sizes;
  for (int64_t dim : order.dims) sizes.push_back(written.size(dim));
  call.answer(drawn_one_by_one(call, written.numel()).view(sizes).permute(order.inverse));
  return true;
}

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

}  // namespace tandem::tracing
