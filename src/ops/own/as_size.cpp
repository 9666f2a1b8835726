#include "ops/own/as_size.h"

#include "base/error.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

at::Tensor as_size(const at::Tensor& number) {
  const int64_t size = number.item().toLong();
  TANDEM_REQUIRE(size >= 0, "call", "item() reads ", size,
                 " in a compiled function: numbers from 0 on are followed, as sizes are",
                 "\n  remedy: keep the computation on tensors, or call it outside the compiled "
                 "function");
  return at::empty({size, 0}, number.options().dtype(at::kByte));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("as_size(Tensor number) -> Tensor", {at::Tag::dynamic_output_shape});
  library.impl("as_size", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(as_size)));
}

constinit const OwnOp kAsSize{"tandem::as_size"};

}  // namespace tandem::ops
