#include "conformance/categories.h"
#include "conformance/inputs.h"

/// Custom functions with several results, of which a backward knows only some gradients: formulas
/// that are not linear, or that look at what is there. The judge differentiates every result by
/// itself.
namespace tandem::conformance {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Formula = variable_list (*)(const variable_list& gradients, const variable_list& saved);

/// Two results of two tensors; `kMaterialize`: a missing gradient is handed over as zeros.
template <Formula kFormula, bool kMaterialize>
struct TwoResults : torch::autograd::Function<TwoResults<kFormula, kMaterialize>> {
  static variable_list forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    context->set_materialize_grads(kMaterialize);
    context->save_for_backward({x, y});
    return {x.sin(), x * y};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return kFormula(gradients, context->get_saved_variables());
  }
};

variable_list product(const variable_list& g, const variable_list& saved) {
  return {g[0] * (1 + g[1]) * saved[0], g[1] * (2 - g[0]) * saved[1]};
}

variable_list quotient(const variable_list& g, const variable_list& saved) {
  return {g[0] / (g[1].abs() + 2) + saved[0], g[1] / (g[0].abs() + 3) * saved[1]};
}

variable_list surgery(const variable_list& g, const variable_list&) {
  const at::Tensor a = g[0] - 1;
  const at::Tensor shared = (a * g[1]).sum() / (g[1] * g[1]).sum().clamp_min(1e-3);
  return {a - shared * g[1], g[1] + 2};
}

variable_list apart(const variable_list& g, const variable_list& saved) {
  return {g[0].exp() * saved[0], (g[1] * 3).cos() * saved[1]};
}

variable_list constant(const variable_list&, const variable_list& saved) {
  return {saved[0] * 2, at::ones_like(saved[1])};
}

variable_list branches(const variable_list& g, const variable_list& saved) {
  at::Tensor dx = saved[0] * 0.5;
  if (g[0].defined()) dx = dx + g[0] * 3;
  dx = g[1].defined() ? dx + g[1].exp() : dx * 7;
  return {dx, g[1].defined() ? g[1] * saved[1] : g[0].cos()};
}

variable_list each_its_own(const variable_list& g, const variable_list& saved) {
  return {g[0].defined() ? g[0] * saved[0] : at::Tensor(),
          g[1].defined() ? (g[1] + 1) * saved[1] : at::Tensor()};
}

template <Formula kFormula, bool kMaterialize = true>
Tensors outside(Tensors& a) {
  const variable_list made = TwoResults<kFormula, kMaterialize>::apply(a[0], a[1]);
  return {made[0], made[1]};
}

template <Formula kFormula, bool kMaterialize = true>
Tensors inside(Tensors& a) {
  const at::Tensor x = a[0].tanh() * a[2];
  const variable_list made = TwoResults<kFormula, kMaterialize>::apply(x, a[1].cos());
  return {made[0] * a[1], (made[1] * x).sin(), a[2] * 3};
}

/// One behind the other, so that one's results feed the other's gradients.
Tensors in_a_row(Tensors& a) {
  const variable_list first = TwoResults<product, true>::apply(a[0], a[1]);
  const variable_list second = TwoResults<branches, false>::apply(first[0], a[1] * 2);
  return {second[0], second[1] + first[1], first[1] * a[0]};
}

}  // namespace

Category partial_backwards() {
  return {"Backwards of some results",
          {
              judged("product of gradients", leaves({{3}, {3}}), outside<product>),
              judged("product of gradients, inside", leaves({{3}, {3}, {3}}), inside<product>),
              judged("quotient of gradients", leaves({{3}, {3}}), outside<quotient>),
              judged("quotient of gradients, inside", leaves({{3}, {3}, {3}}), inside<quotient>),
              judged("gradient surgery", leaves({{3}, {3}}), outside<surgery>),
              judged("gradient surgery, inside", leaves({{3}, {3}, {3}}), inside<surgery>),
              judged("functions of one gradient each", leaves({{3}, {3}, {3}}), inside<apart>),
              judged("gradients that depend on none", leaves({{3}, {3}, {3}}), inside<constant>),
              judged("branches on what is defined", leaves({{3}, {3}}), outside<branches, false>),
              judged("branches on what is defined, inside", leaves({{3}, {3}, {3}}),
                     inside<branches, false>),
              judged("gradients undefined with theirs", leaves({{3}, {3}, {3}}),
                     inside<each_its_own, false>),
              judged("formulas in a row", leaves({{3}, {3}}), in_a_row),
          }};
}

}  // namespace tandem::conformance
