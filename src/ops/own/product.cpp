#include "ops/own/product.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <dlfcn.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

using Matmul = void (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, float, float);

/// libtorch's way to oneDNN's product: exported, but without a header, so it is asked for by name.
/// Only where MKL leaves half of the machine unused: on processors of another maker.
Matmul onednn_product() {
  static const auto function = [] {
    Matmul found = nullptr;
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd") != 0)
      found = reinterpret_cast<Matmul>(
          dlsym(RTLD_DEFAULT, "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"));
#endif
    return found;
  }();
  return function;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const Matmul multiply = onednn_product();
  if (multiply == nullptr) return a.dim() == 2 ? at::mm(a, b) : at::bmm(a, b);
  at::Tensor result = a.dim() == 2 ? at::empty({a.size(0), b.size(1)}, a.options())
                                   : at::empty({a.size(0), a.size(1), b.size(2)}, a.options());
  multiply(a, b, result, 0, 1);
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("product(Tensor a, Tensor b) -> Tensor");
  library.impl("product", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(product)));
}

constinit const OwnOp kProduct{"tandem::product"};

}  // namespace tandem::ops
