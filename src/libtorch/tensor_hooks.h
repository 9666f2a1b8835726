#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace tandem::libtorch {

/// How many hooks of C++ programs a tensor has, removed ones included.
size_t hook_count(const at::Tensor& tensor);
/// Takes back those that were registered after the first `count`.
void drop_later_hooks(const at::Tensor& tensor, size_t count);

}  // namespace tandem::libtorch
