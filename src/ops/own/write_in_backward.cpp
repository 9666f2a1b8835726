#include "ops/own/write_in_backward.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

void write_in_backward(const at::Tensor& input, const at::Tensor& data, int64_t versions) {
  at::AutoDispatchBelowADInplaceOrView below;
  input.copy_(data);
  if (input.is_inference() || versions == 0) return;
  c10::VariableVersion counter = input.unsafeGetTensorImpl()->version_counter();
  counter.set_version(static_cast<int64_t>(counter.current_version()) + versions);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("write_in_backward(Tensor input, Tensor data, int versions) -> ()");
  library.impl("write_in_backward", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                    TORCH_FN(write_in_backward)));
}

constinit const OwnOp kWriteInBackward{"tandem::write_in_backward"};

}  // namespace tandem::ops
