#include "tracing/hooks/determinant.h"

#include "libtorch/node_names.h"
#include "libtorch/version.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;
using NodePtr = decltype(autograd::Edge::function);

/// Determinants below are taken for zero, as in libtorch.
double smallest_det(const at::Tensor& matrix) {
  const double eps = c10::toRealValueType(matrix.scalar_type()) == at::kDouble
                         ? std::numeric_limits<double>::epsilon()
                         : std::numeric_limits<float>::epsilon();
  return 100 * eps;
}

struct DetBackward : autograd::Node {
  DetBackward(NodePtr of_libtorch, const at::Tensor& matrix, const at::Tensor& det)
      : autograd::Node(autograd::edge_list(of_libtorch->next_edges())),
        libtorchs(std::move(of_libtorch)),
        matrix(matrix, /*is_output=*/false),
        det(det, /*is_output=*/true) {}

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (!c10::GradMode::is_enabled() || !gradients[0].defined())
      return (*libtorchs)(std::move(gradients));
    const at::Tensor a = matrix.unpack(), value = det.unpack(getptr());
    const at::Tensor& gradient = gradients[0];
    const int64_t n = a.size(-1);
    const auto options = a.options().requires_grad(std::nullopt);
    const at::Tensor is_singular = value.abs().lt(smallest_det(a)).unsqueeze(-1).unsqueeze(-1);
    // Neither formula sees a matrix that it cannot do: NaN times zero would come back.
    const at::Tensor regular = at::where(is_singular, at::eye(n, options), a);
    const at::Tensor singular =
        at::where(is_singular, a, at::diag_embed(at::arange(1, n + 1, options)));
    const at::Tensor diagonal =
        gradient.mul(value.conj()).unsqueeze(-1).expand(a.sizes().slice(0, a.dim() - 1));
    const at::Tensor solved = at::linalg_solve(regular.mH(), at::diag_embed(diagonal));
    return {at::where(is_singular, by_singular_values(singular, gradient), solved)};
  }

  void release_variables() override {
    libtorchs->release_variables();
    matrix.reset_data();
    det.reset_data();
  }
  std::string name() const override { return libtorchs->name(); }

  /// What libtorch does with every matrix of a trace.
  static at::Tensor by_singular_values(const at::Tensor& matrix, const at::Tensor& gradient) {
    const c10::impl::ExcludeDispatchKeyGuard as_libtorch(c10::DispatchKeySet{libtorch::kLiftKey});
    return autograd::grad({at::linalg_det(matrix)}, {matrix}, {gradient}, true, true)[0];
  }

  NodePtr libtorchs;
  autograd::SavedVariable matrix, det;
};

}  // namespace

std::any note_matrix(BoxedCall& call) {
  const at::Tensor& matrix = call.operand(0).toTensor();
  if (!c10::GradMode::is_enabled() || !matrix.requires_grad() || matrix.numel() == 0) return {};
  return matrix;
}

void give_both_formulas(BoxedCall& call, std::any& left) {
  const auto* matrix = std::any_cast<at::Tensor>(&left);
  if (matrix == nullptr) return;
  const at::Tensor& det = call.stack.back().toTensor();
  // A cast in an autocast region comes in between.
  if (!det.grad_fn() || !libtorch::is_det_formula(*det.grad_fn()) ||
      det.scalar_type() != matrix->scalar_type()) {
    return;
  }
  auto node = libtorch::make_node<DetBackward>(det.grad_fn(), *matrix, det);
  node->add_input_metadata(det);
  autograd::impl::set_gradient_edge(det, autograd::Edge(std::move(node), 0));
}

}  // namespace tandem::tracing
