#include "ops/own/inputs_in_backward.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

at::Tensor itself(const at::Tensor& input) { return input.alias(); }

at::Tensor read_in_backward(const at::Tensor& tensor, at::IntArrayRef strides) {
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

at::Tensor read_meta(const at::Tensor& tensor, at::IntArrayRef strides) {
  return at::empty_strided(tensor.sizes(), strides, tensor.options());
}

void write_in_backward(const at::Tensor& tensor, const at::Tensor& data, int64_t versions) {
  at::AutoDispatchBelowADInplaceOrView below;
  tensor.copy_(data);
  if (tensor.is_inference() || versions == 0) return;
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(static_cast<int64_t>(counter.current_version()) + versions);
}

at::Tensor written(const at::Tensor& data, const at::Tensor&, int64_t) { return data.alias(); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("itself(Tensor input) -> Tensor");
  library.def("read_in_backward(Tensor itself, int[] stride) -> Tensor");
  library.def("write_in_backward(Tensor(a!) itself, Tensor data, int versions) -> ()");
  library.def("written(Tensor(a) data, Tensor before, int formula) -> Tensor(a)");
  const auto add = [&](const char* name, auto function) {
    library.impl(name,
                 torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, std::move(function)));
  };
  add("itself", TORCH_FN(itself));
  add("read_in_backward", TORCH_FN(read_in_backward));
  add("write_in_backward", TORCH_FN(write_in_backward));
  add("written", TORCH_FN(written));
  library.impl("read_in_backward", torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(read_meta)));
}

constinit const OwnOp kItself{"tandem::itself"};
constinit const OwnOp kReadInBackward{"tandem::read_in_backward"};
constinit const OwnOp kWriteInBackward{"tandem::write_in_backward"};
constinit const OwnOp kWritten{"tandem::written"};

}  // namespace tandem::ops
