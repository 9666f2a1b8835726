#include "loops/host/check_kernel.h"

#include "base/error.h"
#include "tandem/ir/text.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tandem::loops {
namespace {

/// Units in the last place of the largest element that a fused chain may be away from eager:
/// functions and sums round in their own way, and a kernel has up to 64 of them.
constexpr double kMostUlps = 256;

double epsilon(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::BFloat16:
      return 0x1p-7;
    case c10::ScalarType::Half:
      return 0x1p-10;
    case c10::ScalarType::Float:
      return std::numeric_limits<float>::epsilon();
    default:
      return std::numeric_limits<double>::epsilon();
  }
}

struct Difference {
  int64_t place = -1;  // in row-major order; -1: none
  double got = 0, expected = 0;
};

Difference compare(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor a = got.to(at::kDouble).flatten(), b = expected.to(at::kDouble).flatten();
  at::Tensor wrong = (a != b) & ~(a.isnan() & b.isnan());
  if (c10::isFloatingType(got.scalar_type())) {
    const at::Tensor finite = b.masked_select(b.isfinite()).abs();
    const double largest = finite.numel() == 0 ? 0 : finite.max().item<double>();
    const double bound = kMostUlps * epsilon(got.scalar_type()) *
                         std::max(largest, std::numeric_limits<float>::min() * 1.0);
    wrong = wrong & ~((a - b).abs() <= bound);
  }
  if (!wrong.any().item<bool>()) return {};
  const int64_t place = wrong.to(at::kInt).argmax().item<int64_t>();
  return {place, a[place].item<double>(), b[place].item<double>()};
}

}  // namespace

void check_kernel(const KernelStep& step, Backend& judge, std::span<const at::Tensor> inputs,
                  std::span<const at::Tensor> outputs) {
  std::vector<at::Tensor> given(inputs.begin(), inputs.end());
  const std::vector<at::Tensor> expected = judge.compile(step.nodes->graph, {})->run(given);
  for (size_t i = 0; i < expected.size(); ++i) {
    const Difference found = compare(outputs[i], expected[i]);
    if (found.place < 0) continue;
    const ir::Graph& graph = step.nodes->graph;
    const ir::Node& node = graph.node(graph.value(graph.outputs()[i].value).producer());
    throw InternalError(
        "check",
        base::str(
            "kernel ", step.name, " differs from eager at element ", found.place, " of ",
            ir::to_string(*graph.value(graph.outputs()[i].value).tensor_type()), ": ", found.got,
            ", eager ", found.expected, "\n  op:     ", ir::print(graph, node),
            base::detail_line("at", ir::to_string(node.location())),
            "\n  remedy: unset TANDEM_BACKEND or use backend \"eager\", and report this graph\n",
            ir::print(graph)));
  }
}

}  // namespace tandem::loops
