#include "ops/own/check_not_equal.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "tandem/ir/type.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <torch/library.h>

namespace tandem::ops {
namespace {

void check_not_equal(const at::Tensor& a, const at::Tensor& b) {
  if (!at::equal(a, b)) return;
  throw CheckFailed(
      "call",
      base::str("two tensors are equal that were taken to differ when the function was "
                "traced: it calls equal() on them\n  tensors: ",
                ir::to_string(ir::type_of(a)),
                "\n  remedy:  compare them outside and pass the outcome as a bool argument"));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("check_not_equal(Tensor a, Tensor b) -> ()");
  library.impl("check_not_equal", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                  TORCH_FN(check_not_equal)));
}

constinit const OwnOp kCheckNotEqual{"tandem::check_not_equal"};

bool has_run_time_checks(const ir::Graph& graph) {
  bool found = false;
  graph.for_each_node([&](const ir::Node& node) { found = found || kCheckNotEqual.is(node); });
  return found;
}

}  // namespace tandem::ops
