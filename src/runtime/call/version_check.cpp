#include "runtime/call/version_check.h"

#include "base/error.h"
#include "libtorch/version.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

/// The words of the error differ between versions of libtorch, so libtorch itself raises it: a
/// double of the tensor goes through what the tensor went through.
[[noreturn]] void let_libtorch_raise(const at::Tensor& double_of,
                                     const autograd::SavedVariable& saved) {
  saved.unpack();
  TANDEM_CHECK(false, "call", "libtorch accepts a saved tensor ", double_of.toString(),
               double_of.sizes(), " that was changed after the forward");
}

at::Tensor double_at_version(const at::Tensor& tensor, autograd::Edge origin, uint32_t version) {
  at::Tensor copy = tensor.variable_data();
  copy.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(version));
  if (origin.is_valid()) autograd::impl::set_gradient_edge(copy, std::move(origin));
  return copy;
}

struct FormerNode : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&&) override { return {}; }
};

}  // namespace

void throw_modified(const at::Tensor& tensor, autograd::Edge origin, uint32_t version,
                    uint32_t expected) {
  const at::Tensor copy = double_at_version(tensor, std::move(origin), expected);
  const autograd::SavedVariable saved(copy, /*is_output=*/false);
  copy.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(version));
  let_libtorch_raise(copy, saved);
}

uint32_t version_to_save(const at::Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  // The constructor raises eager's own text for a tensor without a counter.
  if (!counter.enabled()) autograd::SavedVariable(tensor, /*is_output=*/false);
  return counter.current_version();
}

void check_saved(const at::Tensor& tensor, uint32_t version, bool had_history) {
  const uint32_t now = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  if (now != version) {
    throw_modified(tensor, autograd::Edge(tensor.grad_fn(), tensor.output_nr()), now, version);
  }
  if (!had_history || tensor.grad_fn()) return;
  const at::Tensor copy =
      double_at_version(tensor, autograd::Edge(libtorch::make_node<FormerNode>(), 0), version);
  const autograd::SavedVariable saved(copy, /*is_output=*/false);
  autograd::impl::set_gradient_edge(copy, autograd::Edge());
  let_libtorch_raise(copy, saved);
}

}  // namespace tandem::runtime
