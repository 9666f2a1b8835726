#include "tracing/arrives.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace tandem::tracing {
namespace {

at::Tensor arrives(const at::Tensor& gradient, at::TensorList) { return gradient.alias(); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("arrives(Tensor(a) gradient, Tensor[] tangents) -> Tensor(a)");
  library.impl("arrives",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(arrives)));
}

const c10::OperatorHandle& arrives_op() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tandem::arrives", "");
  return op;
}

}  // namespace tandem::tracing
