#include "ops/own/arrives.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

at::Tensor arrives(const at::Tensor& gradient, at::TensorList) { return gradient.alias(); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("arrives(Tensor(a) gradient, Tensor[] tangents) -> Tensor(a)");
  library.impl("arrives",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(arrives)));
}

constinit const OwnOp kArrives{"tandem::arrives"};

}  // namespace tandem::ops
