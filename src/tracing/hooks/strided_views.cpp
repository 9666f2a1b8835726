#include "tracing/hooks/strided_views.h"

#include "base/error.h"
#include "shapes/reach.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem::tracing {
namespace {

/// Whether each element has a place of its own, as far as sizes and strides show it.
bool lies_apart(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::ranges::sort(dims);
  int64_t reach = 0;  // of the dimensions with smaller strides
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

}  // namespace

std::any leave_out_offset(BoxedCall& call) {
  c10::IValue& offset = call.stack.back();
  if (offset.isInt() && offset.toInt() == call.operand(0).toTensor().storage_offset()) offset = {};
  return {};
}

std::any count_from_memory(BoxedCall& call) {
  const TracedTensor* traced = as_traced(call.operand(0).toTensor());
  c10::IValue& offset = call.stack.back();
  if (call.recording == nullptr || !call.recording->has_inputs() || traced == nullptr ||
      !offset.isInt())
    return {};
  const int64_t before = call.recording->inputs().offset_of_memory(traced->value());
  if (before == 0) return {};
  const size_t sizes = call.operands().size() - 3;
  const int64_t first = offset.toInt() - before;
  const int64_t end = first + shapes::reach(call.operand(sizes).toIntVector(),
                                            call.operand(sizes + 1).toIntVector());
  const ir::TensorType& type = *traced->meta().type;
  if (first < 0 || end > shapes::reach(type.static_sizes(), type.static_strides())) {
    TANDEM_UNSUPPORTED("trace",
                       "a strided view shows more of the memory of an input than the input, which "
                       "the function has written",
                       "\n  sizes:  ", at::IntArrayRef(call.operand(sizes).toIntVector()),
                       "\n  value:  at offset ", offset.toInt(), " of the memory",
                       "\n  remedy: take the view before the write, or pass the tensor that owns "
                       "the memory");
  }
  offset = first;
  return {};
}

std::any check_reach(BoxedCall& call) {
  const at::Tensor& of = call.operand(0).toTensor();
  const Inputs& inputs = call.recording->inputs();
  // Values that a view is taken of again have no memory.
  if (!at::functionalization::impl::isFunctionalTensor(of) || inputs.of_gradients()) return {};
  for (const StandIn& stand_in : inputs.stand_ins()) {
    if (!stand_in.tensor.has_storage() || !stand_in.tensor.storage().is_alias_of(of.storage()) ||
        stand_in.tensor.storage().nbytes() != stand_in.storage_bytes) {
      continue;
    }
    const c10::IValue& offset = call.operand(3);
    at::native::checkInBoundsForStorage<int64_t>(
        call.operand(1).toIntVector(), call.operand(2).toIntVector(),
        offset.isInt() ? offset.toInt() : of.storage_offset(), of.dtype(), stand_in.real.storage());
    break;
  }
  return {};
}

std::any refuse_overlap(BoxedCall& call) {
  const std::vector<int64_t> sizes = call.operand(2).toIntVector(),
                             strides = call.operand(3).toIntVector();
  if (lies_apart(sizes, strides)) return {};
  TANDEM_UNSUPPORTED("trace",
                     "a tensor is written through a view, and several of its elements lie at one "
                     "place",
                     "\n  sizes:   ", at::IntArrayRef(sizes),
                     "\n  strides: ", at::IntArrayRef(strides),
                     "\n  remedy:  pass what it was expanded from, or clone() it");
}

}  // namespace tandem::tracing
