#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace tandem::ops {

/// What autograd knows the tensor to be a view of, or the tensor itself.
at::Tensor root_of(const at::Tensor& tensor);

/// `view`, a view of `base` in memory as `member` is one, lazily conjugated and negated like it.
at::Tensor as_lazy_as(const at::Tensor& member, const at::Tensor& base, const at::Tensor& view);

/// The stretch of one storage that the tensors cover, as a flat tensor that autograd knows nothing
/// of. Capture makes its stand-in from it and every call makes it anew.
at::Tensor flat_memory(std::span<const at::Tensor> tensors);

}  // namespace tandem::ops
