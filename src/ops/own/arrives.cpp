#include "ops/own/arrives.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <string_view>
#include <utility>

namespace tandem::ops {
namespace {

at::Tensor arrives(const at::Tensor& gradient, at::TensorList) { return gradient.alias(); }

at::Tensor either(const at::Tensor& gradient, const std::optional<at::Tensor>&, at::TensorList) {
  return gradient.alias();
}

at::Tensor raises(const at::Tensor& like, std::string_view) { return like.alias(); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("arrives(Tensor(a) gradient, Tensor[] tangents) -> Tensor(a)");
  library.def("either(Tensor(a) gradient, Tensor? otherwise, Tensor[] tangents) -> Tensor(a)");
  library.def("raises(Tensor(a) like, str text) -> Tensor(a)");
  const auto add = [&](const char* name, auto function) {
    library.impl(name,
                 torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, std::move(function)));
  };
  add("arrives", TORCH_FN(arrives));
  add("either", TORCH_FN(either));
  add("raises", TORCH_FN(raises));
}

constinit const OwnOp kArrives{"tandem::arrives"};
constinit const OwnOp kEither{"tandem::either"};
constinit const OwnOp kRaises{"tandem::raises"};

}  // namespace tandem::ops
