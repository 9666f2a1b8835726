#include "tracing/inputs/mirrored_histories.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;

/// As it is noted: a view that is asked for its history may make another one.
const autograd::Node* noted_history(const at::Tensor& tensor) {
  const auto* meta = autograd::impl::get_autograd_meta(tensor);
  return meta ? meta->grad_fn_.get() : nullptr;
}

/// Null for a tensor that is no view.
autograd::DifferentiableViewMeta* view_meta(const at::Tensor& tensor) {
  auto* meta = autograd::impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() ? meta : nullptr;
}

}  // namespace

void MirroredHistories::mirror(const at::Tensor& real, const at::Tensor& stand_in) {
  if (!stand_in.requires_grad() || stand_in.is_leaf()) return;
  const auto known = mirrored_.find(real.unsafeGetTensorImpl());
  if (known == mirrored_.end() && (real.requires_grad() || real.is_inference())) return;
  if (known != mirrored_.end() && !is_mirrored(real)) return;  // take_back() will tell
  const autograd::Edge edge = autograd::impl::gradient_edge(stand_in);
  // Of a view, again: its version may have moved.
  if (known != mirrored_.end() && known->second.edge == edge && !real.is_view()) return;
  const auto* const view = view_meta(real);
  const uint32_t version = known != mirrored_.end() ? known->second.version
                           : view != nullptr        ? view->get_attr_version()
                                                    : 0;
  autograd::impl::set_gradient_edge(real, edge);
  mirrored_.insert_or_assign(real.unsafeGetTensorImpl(), Mirrored{real, edge, version});
}

bool MirroredHistories::is_mirrored(const at::Tensor& real) const {
  const auto known = mirrored_.find(real.unsafeGetTensorImpl());
  return known != mirrored_.end() && noted_history(real) == known->second.edge.function.get();
}

bool MirroredHistories::take_back() {
  bool untouched = true;
  for (const auto& [impl, one] : mirrored_) {
    untouched = untouched && is_mirrored(one.real);
    // Marked as dirty, a view has given its history to the base, which had none either.
    if (const at::Tensor base = one.real.is_view() ? at::Tensor(one.real._base()) : at::Tensor();
        base.defined() && noted_history(base)) {
      autograd::impl::set_gradient_edge(base, autograd::Edge());
    }
    autograd::impl::set_gradient_edge(one.real, autograd::Edge());
    // Otherwise the call, which moves the version to what it is now, would leave the view as it is.
    if (auto* view = view_meta(one.real)) view->set_attr_version(one.version);
  }
  mirrored_.clear();
  return untouched;
}

}  // namespace tandem::tracing
