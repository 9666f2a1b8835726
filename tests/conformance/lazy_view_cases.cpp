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
at::Tensor imaginary(const at::Tensor& x) { return at::imag(x.conj()); }
at::Tensor real_part(const at::Tensor& x) { return at::real(x); }
at::Tensor both_parts(const at::Tensor& x) { return at::view_as_real(x); }

/// A view of a leaf without a gradient, and a tensor with one.
MakeInputs without_grad(const std::function<at::Tensor(const at::Tensor&)>& view,
                        at::ScalarType dtype) {
  return [=] {
    const at::Tensor x = torch::randn({2, 3}, dtype);
    const at::Tensor w = torch::randn({2, 3}, dtype).set_requires_grad(true);
    return Inputs{{view(x), w}, {x, w}};
  };
}

Settings expects_inputs(size_t count) {
  Settings settings;
  settings.entry = [=](const Entry& entry) { EXPECT_EQ(entry.forward().inputs().size(), count); };
  return settings;
}

Case of_view(std::string name, at::Tensor (*view)(const at::Tensor&), const Function& program) {
  return {std::move(name), [=](Session& session) {
            for (const bool requires_grad : {true, false})
              session.judge(lazy(view, requires_grad), program);
          }};
}

Case parts(std::string name, const Function& program, const Settings& settings = {}) {
  return {std::move(name), [=](Session& session) {
            for (const auto& view : {imaginary, real_part, both_parts}) {
              for (const bool requires_grad : {true, false})
                session.judge(lazy(view, requires_grad), program, settings);
            }
          }};
}

Settings in_inference_mode() {
  Settings settings;
  settings.around = [](const std::function<void()>& body) {
    const c10::InferenceMode mode;
    body();
  };
  return settings;
}

Settings in_no_grad() {
  Settings settings;
  settings.around = in_no_grad_mode;
  return settings;
}

/// The function switches grad mode on and writes a view: only the end of the first run tells.
Settings in_no_grad_but_inside() {
  Settings settings = in_no_grad();
  settings.traces = settings.epilogue_traces = 2;
  return settings;
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
              of_view("signs of zeros that are written through a conjugate", conj,
                      [](Tensors& a) -> Tensors {
                        at::imag(a[0].conj()).round_();
                        const at::Tensor y = a[0].conj() * a[0];  // real numbers
                        at::imag(y.conj()).mul_(-1.5);
                        return {y, a[0] * 2};
                      }),
              judged("a conjugate without a gradient gets one and is written through its own",
                     without_grad(conj, torch::kComplexDouble),
                     [](Tensors& a) -> Tensors {
                       a[0].copy_(a[1]);
                       at::imag(a[0].conj()).add_(0.25);
                       return {a[0] * 2};
                     }),
              judged(
                  "a conjugate is written with a gradient in a call without", lazy(conj, true),
                  [](Tensors& a) -> Tensors {
                    const at::AutoGradMode with_grad(true);
                    at::imag(a[0].conj()).mul_(2);
                    return {a[0]};
                  },
                  in_no_grad_but_inside()),
              judged(
                  "a conjugate is written in inference mode", lazy(conj, true),
                  [](Tensors& a) -> Tensors {
                    at::real(a[0].conj()).mul_(0.25);
                    return {a[0]};
                  },
                  in_inference_mode()),
              judged("parts with gaps that are written are copied by contiguous()",
                     lazy(imaginary, false),
                     [](Tensors& a) -> Tensors {
                       const at::Tensor index = at::zeros({2, 3}, torch::kLong);
                       return {a[0].scatter_(1, index, 0.75).contiguous()};
                     }),
              parts("parts of complex numbers, one of them written",
                    [](Tensors& a) -> Tensors {
                      const at::Tensor row = a[0].narrow(0, 1, 1).mul_(-1.5);
                      return {at::stack({row, row}), a[0]};
                    }),
              parts(
                  "parts of complex numbers that nobody writes",
                  [](Tensors& a) -> Tensors { return {a[0].transpose(0, 1), a[0] * 3}; },
                  expects_inputs(1)),
              judged(
                  "a conjugate that nobody writes is the graph's input", lazy(conj, false),
                  [](Tensors& a) -> Tensors { return {a[0] * 2, a[0].t()}; }, expects_inputs(1)),
              judged("conjugated and negated windows are written", leaves({{2, 3}}),
                     [](Tensors& a) -> Tensors {
                       const at::Tensor y = at::complex(a[0], a[0] * 2);
                       at::real(y.unfold(0, 1, 1).conj()).mul_(0.25);
                       at::_neg_view(at::view_as_real(y).unfold(1, 1, 1)).select(2, 0).zero_();
                       return {y};
                     }),
              of_view("a lazy view stays lazy when it is written", negated,
                      [](Tensors& a) -> Tensors {
                        const at::Tensor y = a[0] * 2, z = at::_neg_view(y);
                        return {z.tril_()};
                      }),
              {"ops that do not say that they give views copy in inference mode",
               [](Session& session) {
                 for (const auto& view : {conj, negated}) {
                   session.judge(
                       lazy(view, false),
                       [](Tensors& a) -> Tensors {
                         at::atleast_3d(a[0]).mul_(2);
                         at::broadcast_tensors({a[0], a[0]})[1].mul_(2);
                         return {a[0] * 3};
                       },
                       in_inference_mode());
                 }
               }},
              {"ops that say so give views in inference mode",
               [](Session& session) {
                 for (const auto& view : {conj, negated}) {
                   session.judge(
                       lazy(view, false),
                       [](Tensors& a) -> Tensors {
                         a[0].reshape({3, 2}).mul_(2);
                         return {a[0] * 3};
                       },
                       in_inference_mode());
                 }
               }},
              judged("lazy views of a result that is transposed afterwards", lazy(conj, false),
                     [](Tensors& a) -> Tensors {
                       const at::Tensor y = a[0].conj_physical();
                       const at::Tensor lazy = y.conj().unsqueeze(0).select(0, 0);
                       return {lazy, at::_neg_view(y), y.t_()};
                     }),
              judged("parts of a result that is transposed afterwards", lazy(conj, false),
                     [](Tensors& a) -> Tensors {
                       const at::Tensor y = a[0].conj_physical();
                       const at::Tensor parts = at::view_as_real(y), part = at::imag(y.conj());
                       y.unsqueeze_(0);
                       return {parts, part, y};
                     }),
          }};
}

}  // namespace tandem::conformance
