#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>

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

/// A hook averages gradients into a tensor that the forward writes, and adds what it holds: each
/// backward finds what the one before it has left.
Tensors averages(Tensors& a) {
  a[1].mul_(0.5);
  const at::Tensor average = a[1], h = a[0].tanh();
  h.register_hook([average](const at::Tensor& g) {
    average.mul_(0.75).add_(g, 0.25);
    return g + average;
  });
  return {h.exp() * a[2], a[2] * 2, h * 3};
}

/// Two hooks on one tensor: a backward runs one of them, or both.
Tensors counts_twice(Tensors& a) {
  a[1].add_(1);
  const at::Tensor count = a[1], h = a[0].sin(), k = a[2].cos();
  h.register_hook([count](const at::Tensor& g) { return g * count.add_(1).sum(); });
  k.register_hook([count](const at::Tensor& g) { return g + count.mul_(2); });
  return {h * k, k * 2, h * 3};
}

/// Keeps a tensor beside what it saves, and adds its gradient there.
struct SumsUp : torch::autograd::Function<SumsUp> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, at::Tensor sum) {
    context->saved_data["sum"] = sum;
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list g) {
    const at::Tensor sum = context->saved_data["sum"].toTensor();
    sum.add_(g[0]);
    return {g[0] * 2 + sum * context->get_saved_variables()[0], at::Tensor()};
  }
};

Tensors sums_up(Tensors& a) {
  a[1].mul_(0.5);
  const at::Tensor once = SumsUp::apply(a[0], a[1]);
  return {SumsUp::apply(once.sin(), a[1]) * a[2], once + a[2]};
}

/// The second tensor takes no gradient: it is what the backward writes.
Inputs with_state() {
  const at::Tensor x = leaf({3}), z = leaf({3});
  return {{x, torch::randn({3}), z}, {x, z}};
}

/// A write in a backward with create_graph is refused.
Settings writes_in_backward() {
  Settings settings;
  settings.orders = 0;
  return settings;
}

/// Eager's gradient of the first result does not look at what the second argument was made of.
void leaves_what_lies_behind_an_input(Session&) {
  const auto f = tandem::compile([](const at::Tensor& x, const at::Tensor& y) {
    return std::vector<at::Tensor>{x * 2, y * 3};
  });
  const at::Tensor x = leaf({3}), w = leaf({3});
  const auto gradient = [&](bool written) {
    const at::Tensor saved = w.exp(), y = saved * 2;
    const std::vector<at::Tensor> results = f(x, y);
    if (written) saved.detach().mul_(2);
    return torch::autograd::grad({results[0].sum()}, {x, w}, {}, {}, false, true);
  };
  EXPECT_FALSE(gradient(false)[1].defined());
  EXPECT_FALSE(gradient(true)[1].defined());
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
              judged("a hook writes what the forward writes", with_state, averages,
                     writes_in_backward()),
              judged("two hooks write what the forward writes", with_state, counts_twice,
                     writes_in_backward()),
              judged("a custom function writes what the forward writes", with_state, sums_up,
                     writes_in_backward()),
              {"what lies behind an input that the result does not lead to",
               leaves_what_lies_behind_an_input},
          }};
}

}  // namespace tandem::conformance
