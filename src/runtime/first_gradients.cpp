#include "runtime/first_gradients.h"

#include "libtorch/private_members.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

/// Asked for every leaf in every call until there is one.
bool has_gradient(const at::Tensor& leaf) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(
      libtorch::autograd_meta(*leaf.unsafeGetTensorImpl()));
  return meta != nullptr && meta->grad_.defined();
}

}  // namespace

FirstGradients::FirstGradients(const ir::Signature& signature,
                               const std::vector<at::Tensor>& lifted) {
  if (!signature.training) return;
  for (size_t i = 0; i < lifted.size(); ++i) {
    const ir::InputFacts& facts = signature.inputs[i];
    if (facts.role.role == ir::Role::Lifted && facts.requires_grad && facts.is_leaf &&
        !has_gradient(lifted[i])) {
      leaves_.push_back(&lifted[i]);
    }
  }
  waits_.store(!leaves_.empty(), std::memory_order_relaxed);
}

bool FirstGradients::look() {
  return std::ranges::any_of(leaves_, [](const at::Tensor* leaf) { return has_gradient(*leaf); }) &&
         waits_.exchange(false, std::memory_order_relaxed);
}

}  // namespace tandem::runtime
