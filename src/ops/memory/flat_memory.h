#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace tandem::ops {

/// What autograd knows the tensor to be a view of, or the tensor itself.
at::Tensor root_of(const at::Tensor& tensor);

/// Whether `member`, which shows memory of `base`, can be taken of it anew: it has its dtype, or
/// shows its complex numbers as real ones.
bool can_be_taken_of(const at::Tensor& base, const at::Tensor& member);
/// Takes of `memory`, which stands for `base`, the view that `member` is of `base`. A new value
/// begins at the beginning of its memory, wherever the base does: then an offset that is the base's
/// is left out.
struct Taken {
  const at::Tensor& member;
  const at::Tensor& base;
  bool keeps_offset = true;
};
at::Tensor take_view(const at::Tensor& memory, const Taken& taken);

/// The stretch of one storage that the tensors cover, as a flat tensor that autograd knows nothing
/// of. Capture makes its stand-in from it and every call makes it anew.
at::Tensor flat_memory(std::span<const at::Tensor> tensors);

}  // namespace tandem::ops
