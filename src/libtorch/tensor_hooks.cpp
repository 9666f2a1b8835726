#include "libtorch/tensor_hooks.h"

#include <torch/csrc/autograd/variable.h>

namespace tandem::libtorch {
namespace {

torch::autograd::hooks_list* hooks_of(const at::Tensor& tensor) {
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta == nullptr ? nullptr : meta->cpp_hooks_list_.get();
}

}  // namespace

size_t hook_count(const at::Tensor& tensor) {
  const auto* hooks = hooks_of(tensor);
  return hooks == nullptr ? 0 : hooks->size();
}

void drop_later_hooks(const at::Tensor& tensor, size_t count) {
  auto* hooks = hooks_of(tensor);
  if (hooks != nullptr && hooks->size() > count) hooks->resize(count);
}

}  // namespace tandem::libtorch
