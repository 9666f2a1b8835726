#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

/// Lazily conjugated and negated views: as arguments, and written through.
namespace tandem::conformance {
namespace {

at::Tensor complex_leaf(bool requires_grad) {
  return torch::randn({2, 3}, torch::kComplexDouble).set_requires_grad(requires_grad);
}

/// A view of a result, with or without a gradient.
MakeInputs lazy(const std::function<at::Tensor(const at::Tensor&)>& view, bool requires_grad) {
  return [=] {
    const at::Tensor x = complex_leaf(requires_grad), base = x * 0.5;
    return Inputs{{view(base)}, {x}, {base}};
  };
}

/// The view, and what it is a view of.
MakeInputs lazy_and_base(const std::function<at::Tensor(const at::Tensor&)>& view) {
  return [=] {
    const at::Tensor x = complex_leaf(true), base = x * 0.5;
    return Inputs{{view(base), base}, {x}};
  };
}

at::Tensor conj(const at::Tensor& x) { return x.conj(); }
at::Tensor negated(const at::Tensor& x) { return at::_neg_view(x); }

Case of_view(std::string name, at::Tensor (*view)(const at::Tensor&), const Function& program) {
  return {std::move(name), [=](Session& session) {
            for (const bool requires_grad : {true, false})
              session.judge(lazy(view, requires_grad), program);
          }};
}

}  // namespace

Category lazy_views() {
  return {"Lazy conjugates and negations",
          {
              of_view("the imaginary part of the conjugate of an argument is written", conj,
                      [](Tensors& a) -> Tensors {
                        at::imag(a[0].conj()).add_(-1.5);
                        return {a[0]};
                      }),
              of_view("the same, read afterwards as real numbers", conj,
                      [](Tensors& a) -> Tensors {
                        at::real(a[0].conj()).mul_(2);
                        return {at::view_as_real(a[0].conj()) * 2};
                      }),
              of_view("a negated argument is written and returned", negated,
                      [](Tensors& a) -> Tensors { return {a[0].mul_(3)}; }),
              of_view("an argument goes into another one", conj,
                      [](Tensors& a) -> Tensors {
                        at::imag(a[0].conj()).add_(-0.5);
                        const at::Tensor y = at::zeros_like(a[0]);
                        return {y.copy_(a[0])};
                      }),
              of_view("a view of a negated argument that nobody writes", negated,
                      [](Tensors& a) -> Tensors { return {a[0].t(), a[0].sin()}; }),
              judged("a view and its base, one is written", lazy_and_base(conj),
                     [](Tensors& a) -> Tensors {
                       a[0].mul_(2);
                       return {a[1] * 3, a[0]};
                     }),
              judged("a negation and its base, the base is written", lazy_and_base(negated),
                     [](Tensors& a) -> Tensors {
                       a[1].mul_(2);
                       return {a[0] * 3, a[1].exp()};
                     }),
              of_view("what was written through a lazy view is not lazy itself", conj,
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = a[0].conj_physical().clone();
                        at::imag(y.conj()).add_(-1.5);
                        const at::Tensor z = a[0] + a[0];
                        z.conj().mul_(2);
                        return {y, z, at::view_as_real(z)};
                      }),
              of_view("what is resolved and written through its conjugate", conj,
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = a[0].resolve_conj();
                        y.conj().copy_(a[0] * 2);
                        return {y};
                      }),
              of_view("a lazy view stays lazy when it is written", negated,
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = a[0] * 2, z = at::_neg_view(y);
                        return {z.tril_()};
                      }),
          }};
}

}  // namespace tandem::conformance
