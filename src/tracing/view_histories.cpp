#include "tracing/view_histories.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;

autograd::DifferentiableViewMeta* view_meta(const at::Tensor& tensor) {
  auto* meta = autograd::impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() ? meta : nullptr;
}

}  // namespace

ViewHistories::ViewHistories() : exceptions_(std::uncaught_exceptions()) {}

void ViewHistories::note(const at::Tensor& real) {
  const auto* meta = view_meta(real);
  if (meta == nullptr || real.is_inference()) return;
  noted_.push_back({real.unsafeGetTensorImpl(), autograd::Edge(meta->grad_fn_, meta->output_nr_),
                    meta->get_attr_version()});
}

ViewHistories::~ViewHistories() {
  if (std::uncaught_exceptions() <= exceptions_) return;
  for (const Noted& one : noted_) {
    const at::Tensor view(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(one.view));
    auto* meta = view_meta(view);
    if (meta == nullptr || meta->grad_fn_ == one.edge.function) continue;
    meta->grad_fn_ = one.edge.function;
    meta->output_nr_ = one.edge.input_nr;
    meta->set_attr_version(one.version);
  }
}

}  // namespace tandem::tracing
