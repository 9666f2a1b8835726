#pragma once

#include "tracing/inputs/stand_in.h"
#include "tracing/recording/recording.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::tracing {

/// Tensors that share memory when the function starts. Their stand-ins are views of one base, so
/// that a write through one is seen through the others, as it is outside.
struct Group {
  at::Tensor real;       // the base
  bool is_root = false;  // the base is what autograd knows all members to be views of; otherwise
                         // a flat stretch of their storage that autograd knows nothing of
  at::Tensor tensor;     // stand-in of the base
  ir::ValueId input = ir::kNoValue;
  std::vector<size_t> members{};  // positions among the stand-ins
  bool borrows = false;           // version counters of the real tensors

  // as the function finds it
  torch::autograd::Edge edge{};
  bool requires_grad = false;
  bool is_leaf = true;
};

/// Whether its history follows the writes to a tensor that it is a view of, of which a trace can
/// take such a view.
bool is_differentiable_view(const at::Tensor& tensor);

/// Whether it is a lazy conjugate of what it is a view of. Standing for itself it would have no
/// such base, and a history of writes to its conjugate, or to its real numbers, takes those of a
/// gradient that is no lazy conjugate.
bool is_conjugate(const at::Tensor& tensor);

/// Of which tensors a write to one view changes the history of the others, overlap or not.
enum class RelatedViews { None, OfTensorsWithGrad, OfAll };

/// Whether a write to one of two different tensors may concern the other: they share memory, or are
/// views of one tensor.
bool are_related(const at::Tensor& a, const at::Tensor& b, RelatedViews views);

/// Components of two and more tensors that are related, as positions in `tensors`.
std::vector<std::vector<size_t>> related(std::span<const at::Tensor> tensors, RelatedViews views);

/// Why such tensors can have no common base: they see the memory as different dtypes, some as a
/// lazy conjugate or negation, or some that require grad are views of each other and some are not.
/// Empty if they can. As long as nobody writes the memory they need none.
std::string cannot_be_group(std::span<const at::Tensor> members);

/// Makes the base of the group that `members` form, and a graph input for it.
Group make_group(Recording& recording, std::span<const at::Tensor> members, int64_t index,
                 bool caller_in_inference_mode);

/// The stand-in of a member: a view of the base, and a graph input of its own, which the graph uses
/// if nobody writes the group. `equal_members` earlier ones have the same sizes, strides and
/// offset.
StandIn make_member(Recording& recording, const Group& group, const at::Tensor& real,
                    size_t equal_members, ir::Descriptor role, std::string name,
                    bool caller_in_inference_mode);

}  // namespace tandem::tracing
