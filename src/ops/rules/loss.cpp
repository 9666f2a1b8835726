#include "ops/rules/rules.h"

#include <ATen/core/Reduction.h>

namespace tandem::ops::rules {
namespace {

bool is_reduced(const Args& args) { return args.integer("reduction") != at::Reduction::None; }

TensorType scalar(const TensorType& like) { return contiguous(like, {}); }

}  // namespace

Results binary_cross_entropy(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  if (!same_sizes(*self, *target) || self->dtype != target->dtype) return std::nullopt;
  return answer(is_reduced(args) ? scalar(*self) : like_preserved(*self));
}

// The kernel starts from `1 - target` and works in place, so the target's layout and dtype win.
Results binary_cross_entropy_with_logits(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  if (!same_sizes(*self, *target) || self->dtype != target->dtype) return std::nullopt;
  return answer(is_reduced(args) ? scalar(*target)
                                 : iterated(args, {&args.meta("target")}, target->dtype));
}

Results huber_loss(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  if (!same_sizes(*self, *target) || self->dtype != target->dtype) return std::nullopt;
  return answer(is_reduced(args) ? scalar(*self) : like_preserved(*self));
}

Results loss_backward(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  if (!same_sizes(*self, *target)) return std::nullopt;
  return answer(like_contiguous(*self));
}

Results nll_loss2d_forward(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  bool fits = self->rank() == 4 && target->rank() == 3 && self->sizes[0] == target->sizes[0] &&
              self->sizes[2] == target->sizes[1] && self->sizes[3] == target->sizes[2];
  if (!fits) return std::nullopt;
  return answer(is_reduced(args) ? scalar(*self) : contiguous(*self, target->sizes), scalar(*self));
}

Results multi_margin_loss(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  if (self->rank() < 1 || self->rank() > 2 || target->rank() > 1) return std::nullopt;
  bool one = is_reduced(args) || target->rank() == 0;
  return answer(one ? scalar(*self) : contiguous(*self, target->sizes));
}

Results multilabel_margin_loss_forward(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor("self"), *target = args.tensor("target");
  if (!same_sizes(*self, *target)) return std::nullopt;
  bool one = is_reduced(args) || target->rank() <= 1;
  return answer(one ? scalar(*self) : contiguous(*self, {self->sizes[0]}),
                contiguous(*self, target->sizes));
}

}  // namespace tandem::ops::rules
