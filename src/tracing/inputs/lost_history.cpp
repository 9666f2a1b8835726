#include "tracing/inputs/lost_history.h"

#include "libtorch/version.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;

/// On the same memory and version counter; autograd knows nothing of it.
at::Tensor handle_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(),
                                                 /*allow_tensor_metadata_change=*/true));
}

/// Where the gradient of a view ends whose base needs none.
struct NoGradient : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&&) override { return {}; }
  std::string name() const override { return "TandemNoGradient"; }
};

/// By this autograd takes a view of `base` again that was written. If the base needs no gradient
/// then, the view says that it requires grad, and no gradient arrives anywhere: so does eager's.
class TakenApart : public autograd::ViewFunc {
 public:
  TakenApart(const at::Tensor& base, std::unique_ptr<autograd::ViewFunc> view)
      : TakenApart(Weak(base.getIntrusivePtr()), std::move(view)) {}

  at::Tensor operator()(const at::Tensor& of) const override {
    const at::Tensor tensor = view_ ? (*view_)(of) : handle_of(of);
    // The same part of a gradient is taken by it, too.
    if (of.unsafeGetTensorImpl() == base_._unsafe_get_target() && !tensor.requires_grad()) {
      auto end = libtorch::make_node<NoGradient>();
      end->add_input_metadata(tensor);
      autograd::impl::set_gradient_edge(tensor, autograd::Edge(std::move(end), 0));
    }
    return tensor;
  }
  std::unique_ptr<autograd::ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> /*symints*/,
      std::optional<std::vector<at::Tensor>> /*tensors*/) const override {
    return std::unique_ptr<TakenApart>(
        new TakenApart(base_, view_ ? view_->clone_and_set() : nullptr));
  }

 private:
  // Held weakly: the view holds it, and a base that is gone gives its address to nobody.
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  TakenApart(Weak base, std::unique_ptr<autograd::ViewFunc> view)
      : base_(std::move(base)), view_(std::move(view)) {}

  Weak base_;
  std::unique_ptr<autograd::ViewFunc> view_;  // none: the base as it is
};

}  // namespace

void set_apart(const at::Tensor& tensor) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const auto* meta = autograd::impl::get_view_autograd_meta(tensor);
  const bool is_view = meta != nullptr && meta->has_bw_view();
  const autograd::ViewInfo* const known = is_view ? &meta->get_backward_view() : nullptr;
  const at::Tensor base = known ? known->base_ : handle_of(tensor);
  autograd::ViewInfo info(
      base, std::make_unique<TakenApart>(base, known ? known->view_fn().clone_and_set() : nullptr),
      [](const at::Tensor& view) { return handle_of(view); });
  impl->set_autograd_meta(std::make_unique<autograd::DifferentiableViewMeta>(
      impl, std::move(info), std::nullopt, /*shared_view_info=*/false));
}

bool leads_nowhere(const at::Tensor& tensor) {
  for (auto node = tensor.grad_fn(); node; node = node->next_edge(0).function) {
    if (dynamic_cast<const NoGradient*>(node.get()) != nullptr) return true;
    if (node->num_outputs() != 1) return false;
  }
  return false;
}

void keep_view_without_base(const at::Tensor& view) {
  auto* meta = autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr || !meta->has_bw_view()) return;
  const autograd::ViewInfo& info = meta->get_backward_view();
  if (!info.has_view_fn() || !info.base_.requires_grad() ||
      dynamic_cast<const TakenApart*>(&info.view_fn()) != nullptr)
    return;
  // No member function exchanges one; the view is ours.
  auto& own = const_cast<autograd::ViewInfo&>(info);
  const at::Tensor base = info.base_;
  own = autograd::ViewInfo(base, std::make_unique<TakenApart>(base, info.view_fn().clone_and_set()),
                           info.rev_view_fn());
}

}  // namespace tandem::tracing
