#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "fuzz/custom_functions.h"

#include <gtest/gtest.h>

/// Programs that the fuzzer found to differ from eager, shrunk. One list, however long: nothing
/// orders them but that they were found. A class of defects gets a file of its own.
namespace tandem::conformance {
namespace {

using fuzz::MarksDirty;
using fuzz::Product;
using fuzz::ReturnsInput;
using fuzz::ReturnsView;
using fuzz::UndefinedGradient;

/// A view whose base is no argument.
Inputs lone_view() {
  const at::Tensor leaf = torch::randn({6}).requires_grad_();
  return {{leaf.slice(0, 1, 5)}, {leaf}, {}};
}

Inputs lone_view_of_non_leaf() {
  const at::Tensor leaf = torch::randn({6}).requires_grad_();
  const at::Tensor base = leaf * 1.5;
  return {{base.view({2, 3})}, {leaf}, {base}};
}

/// A view of a leaf, and an alias of it that autograd does not know.
Inputs view_and_detached() {
  const at::Tensor leaf = torch::randn({2, 3}).requires_grad_();
  const at::Tensor view = leaf.view({3, 2});
  return {{view, view.detach()}, {leaf}, {}};
}

/// Two equal singular values, and all of them.
Inputs regular_matrices() {
  const at::Tensor leaf = at::stack({torch::eye(3) * 2, torch::eye(3)}).requires_grad_();
  return {{leaf}, {leaf}, {}};
}

/// What it closes over has a history that leads to nothing the caller asks for.
Program with_hidden_history() {
  const at::Tensor closed = torch::randn({2}).requires_grad_() * 1.5;
  return {leaves({{2}}), [closed](Tensors& a) -> Tensors {
            const at::Tensor factor = closed.exp();
            factor.mul_(2);
            return {a[0] * factor};
          }};
}

Inputs with_gaps() {
  at::Tensor base = torch::randn({3, 3});
  return {{base.diagonal()}, {}, {base}};
}

Inputs transposed() {
  at::Tensor base = torch::randn({2, 4});
  return {{base.t()}, {}, {base}};
}

/// A function of what it closes over.
MakeProgram closing_over(std::function<at::Tensor()> make,
                         std::function<Tensors(const at::Tensor&, Tensors&)> function) {
  return [=] {
    const at::Tensor closed = make();
    return Program{[closed] {
                     Inputs inputs{{torch::randn({2}).requires_grad_()}};
                     inputs.leaves = inputs.arguments;
                     (closed.is_leaf() ? inputs.leaves : inputs.watched).push_back(closed);
                     return inputs;
                   },
                   [=](Tensors& a) { return function(closed, a); }};
  };
}

/// A function of a closed-over tensor that was written before, and of a view of it.
MakeProgram closing_over_with_view(
    std::function<Tensors(const at::Tensor&, const at::Tensor&)> function) {
  return [=] {
    const at::Tensor leaf = torch::randn({3}).requires_grad_();
    const at::Tensor base = (leaf * 1.5).add_(1), view = base.view({3, 1});
    return Program{[=] {
                     Inputs inputs{{torch::randn({2})}, {leaf}, {base, view}};
                     return inputs;
                   },
                   [=](Tensors&) { return function(base, view); }};
  };
}

/// The caller goes on with a result whose history ends inside. Its saved tensor is overwritten, but
/// a gradient in an argument does not lead there.
Settings going_on_from_the_last() {
  Settings settings;
  settings.further = [](const Tensors&, const Tensors& results) -> Tensors {
    const at::Tensor result = results.back();
    const at::Tensor y = at::silu(result);
    return {y, result.tanh_()};
  };
  return settings;
}

void view_without_grad_gets_history(Session& session) {
  session.judge(
      [] {
        Inputs inputs;
        const at::Tensor base = torch::zeros({2}), x = torch::randn({2}).requires_grad_();
        inputs.arguments = {base.view({2}), x};
        inputs.leaves = {x};
        inputs.watched = {base};
        return inputs;
      },
      [](Tensors& a) -> Tensors {
        a[0].sub_(a[1]);
        return {a[1] * 2};
      });
}

Settings raising_in_backward(const char* words) {
  Settings settings;
  settings.backward_raises = words;
  return settings;
}

/// For what a libtorch may know and an earlier one did not.
Settings raising_what_eager_raises(void (*body)()) {
  Settings settings;
  try {
    body();
  } catch (const c10::Error& error) {
    settings.raises = error.what_without_backtrace();
  } catch (const std::runtime_error& error) {
    settings.raises = error.what();
  }
  return settings;
}

Settings raises_with(const char* words) {
  Settings settings;
  settings.raises = words;
  return settings;
}

Settings refused_with(const char* words) {
  Settings settings;
  settings.refused = words;
  return settings;
}

}  // namespace

Category fuzz_found() {
  return {
      "Found by the fuzzer",
      {
          judged("contiguous() of memory with gaps, written before", with_gaps,
                 [](Tensors& a) -> Tensors {
                   a[0].addcdiv_(a[0], a[0].abs() + 0.5, 0.5);
                   return {a[0].contiguous()};
                 }),
          judged("contiguous() of a transposed argument after masked_fill_", transposed,
                 [](Tensors& a) -> Tensors {
                   a[0].masked_fill_(a[0] > 0, 1);
                   return {a[0].contiguous()};
                 }),
          judged("masked_fill_ of the transpose of a result", plain({{2, 4}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0] * 2;
                   y.t().masked_fill_(y.t() > 0, 1);
                   return {y, y.contiguous()};
                 }),
          judged("transpose_ and masked_fill_ of an argument", plain({{4, 2}}),
                 [](Tensors& a) -> Tensors {
                   a[0].transpose_(0, 1).masked_fill_(a[0] > 0, 1);
                   return {a[0] * 2};
                 }),
          judged(
              "a formula that compares its gradient, left out", leaves({{1, 4}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor y = a[0].diff();
                return {y, y.logcumsumexp(1)};
              },
              [] {
                Settings settings;
                settings.backward_raises = "modified by an inplace operation";
                return settings;
              }()),
          judged(
              "custom function that returns an expanded argument",
              [] {
                at::Tensor x = leaf({1});
                return Inputs{{x.expand({3})}, {x}};
              },
              [](Tensors& a) -> Tensors { return {ReturnsInput::apply(a[0])}; }),
          judged(
              "custom function that returns a view of an expanded argument",
              [] {
                at::Tensor x = leaf({2, 1});
                return Inputs{{x.expand({2, 3})}, {x}};
              },
              [](Tensors& a) -> Tensors { return {ReturnsView::apply(a[0])}; },
              [] {
                Settings settings;
                settings.own_view_nodes = true;
                return settings;
              }()),
          judged(
              "part of an expanded argument beside it, written",
              [] {
                at::Tensor wide = leaf({3}, false).expand({2, 3});
                return Inputs{{wide.narrow(0, 0, 1), wide}, {}};
              },
              [](Tensors& a) -> Tensors {
                a[0].zero_();
                return {a[1] + 1};
              }),
          judged(
              "part of an expanded argument written",
              [] { return Inputs{{leaf({3}, false).expand({2, 3})}, {}}; },
              [](Tensors& a) -> Tensors {
                a[0].select(0, 0).zero_();
                return {a[0] + 1};
              },
              [] {
                Settings settings;
                settings.refused = "several of its elements lie at one place";
                return settings;
              }()),
          judged("view of a leaf made on the memory of an argument", plain({{3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor leaf = a[0].detach().requires_grad_();
                   return {leaf.view({3, 1}), leaf};
                 }),
          {"view of what a custom function makes of a closed-over tensor",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}).requires_grad_(); },
                                        [](const at::Tensor& closed, Tensors&) -> Tensors {
                                          return {ReturnsInput::apply(closed).view({2, 1})};
                                        }),
                           [] {
                             Settings settings;
                             settings.own_view_nodes = true;
                             return settings;
                           }());
           }},
          {"custom function on a closed-over tensor that was written",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}).requires_grad_() * 2; },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          closed.mul_(2);
                                          return {Product::apply(closed, a[0])};
                                        }),
                           refused_with("that the function has written before"));
           }},
          {"view without grad gets a history", view_without_grad_gets_history},
          judged(
              "foreach op that writes the same memory twice", plain({{2}}),
              [](Tensors& a) -> Tensors {
                at::_foreach_add_({a[0], a[0].view({2, 1})}, 1);
                return {a[0]};
              },
              refused_with("writes the same memory twice")),
          judged(
              "write to as_strided of a view", plain({{6}}),
              [](Tensors& a) -> Tensors {
                a[0].view({2, 3}).as_strided({2, 2}, {2, 1}, 1).mul_(2);
                return {a[0] * 2};
              },
              refused_with("as_strided() took of another view")),
          judged(
              "one of several views of what a custom function returns", leaves({{2, 2}}),
              [](Tensors& a) -> Tensors {
                return {ReturnsInput::apply(a[0]).unbind(1)[1],
                        ReturnsInput::apply(a[0].unbind(1)[0])};
              },
              [] {
                Settings settings;
                settings.own_view_nodes = true;
                settings.sums_may_round = true;
                return settings;
              }()),
          {"custom function on a closed-over tensor that is written later",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}).requires_grad_() * 2; },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          const at::Tensor y = Product::apply(closed, a[0]);
                                          closed.mul_(2);
                                          return {y};
                                        }),
                           raising_in_backward("modified by an inplace operation"));
           }},
          judged("lazy conjugate as the tangent of a complex result", leaves({{3}}),
                 [](Tensors& a) -> Tensors { return {at::complex(a[0], a[0] * 2).conj()}; }),
          judged("result of logcumsumexp written, beside a sum with other strides",
                 leaves({{1, 2}}),
                 [](Tensors& a) -> Tensors {
                   return {at::stack({a[0], a[0]}, 1), a[0].logcumsumexp(1)};
                 }),
          judged("tril_ of the transpose of a view", plain({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].reshape({-1}).repeat({2}).slice(0, 0, 6);
                   return {y.view({2, 3}).t().tril_(), y};
                 }),
          judged(
              "trace of a number, not used", plain({{}}),
              [](Tensors& a) -> Tensors {
                a[0].trace();
                return {a[0] * 2};
              },
              [] {
                Settings settings;
                settings.raises = "expected a matrix";
                return settings;
              }()),
          judged(
              "formula that leads only to a leaf which the function drops", plain({{2}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor y = a[0].detach().requires_grad_().exp();
                return {y.mul_(2)};
              },
              raising_in_backward("modified by an inplace operation")),
          judged("result of logcumsumexp of a chunk written, beside another chunk", leaves({{2}}),
                 [](Tensors& a) -> Tensors {
                   const Tensors parts = a[0].chunk(2);
                   return {parts[1].logcumsumexp(0), parts[0].mean()};
                 }),
          judged(
              "fill_diagonal_ of a part of a tensor that was written",
              [] {
                const at::Tensor base = torch::randn({3, 2});
                return Inputs{{base.narrow(0, 1, 2)}, {}, {base}};
              },
              [](Tensors& a) -> Tensors {
                a[0].flatten().add_(1);
                a[0].fill_diagonal_(0.5);
                return {a[0] * 2};
              }),
          judged("fill_diagonal_ of a transposed argument", non_leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].t() * 2;
                   return {y.fill_diagonal_(0.5), a[0].t().fill_diagonal_(1) * 3};
                 }),
          judged("out= argument with other strides than the sum", plain({{2, 3}, {3, 2}}),
                 [](Tensors& a) -> Tensors {
                   at::Tensor y = a[1] * 2;
                   at::add_out(y, a[0].t(), a[0].t());
                   return {y, y.view({-1})};
                 }),
          judged("detached alias written by a differentiable op, of one of several views",
                 leaves({{2}}),
                 [](Tensors& a) -> Tensors {
                   at::Tensor y = (a[0].detach() * 2).split(1)[1].detach();
                   return {y.mul_(3).add_(a[0].sum())};
                 }),
          {"closed-over tensor given to a custom function and written through its result",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}).requires_grad_() * 2; },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          const at::Tensor y = ReturnsInput::apply(closed) * 1;
                                          closed.lerp_(y, 0.25);
                                          return {a[0] * 2};
                                        }));
           }},
          {"closed-over tensor written before and after a custom function",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}).requires_grad_() * 2; },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          closed.mul_(2);
                                          const at::Tensor y = Product::apply(closed, a[0]);
                                          closed.zero_();
                                          return {y};
                                        }),
                           [] {
                             Settings settings =
                                 refused_with("that the function has written before");
                             settings.backward_raises = "modified by an inplace operation";
                             return settings;
                           }());
           }},
          judged("lone view written without grad after it was read", lone_view,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0] * 2;
                   a[0].detach().mul_(3);
                   return {y};
                 }),
          judged("lone view written without grad before it is read", lone_view,
                 [](Tensors& a) -> Tensors {
                   {
                     torch::NoGradGuard no_grad;
                     a[0].neg_();
                   }
                   return {a[0].exp()};
                 }),
          judged("view of a lone view, written", lone_view_of_non_leaf,
                 [](Tensors& a) -> Tensors { return {a[0].unsqueeze(0).mul_(0.25)}; }),
          judged("view of a detached alias that is returned, too", plain({{3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].detach().mul_(0.5);
                   return {y.narrow(0, 0, 1).zero_(), y};
                 }),
          judged("detached alias reshaped in place", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0].detach().mul_(2).t_()}; }),
          judged("two equal splits", plain({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0] * 2;
                   return {y.split(1)[1], y.split(1)[1]};
                 }),
          judged("gradient that a custom function makes of nothing", leaves({{3}, {3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = UndefinedGradient::apply(a[1], a[0]);
                   return {UndefinedGradient::apply(a[0], y), y};
                 }),
          {"closed-over tensor marked dirty in every call",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}); },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          MarksDirty::apply(closed);
                                          return {a[0] * 2, closed};
                                        }));
           }},
          {"closed-over tensor written before a custom function saves it",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({2}); },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          closed.neg_();
                                          return {Product::apply(closed, a[0])};
                                        }));
           }},
          judged("transposed convolution in one dimension, transposed", leaves({{2, 2, 4}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor weight = a[0].flatten().slice(0, 0, 4).view({1, 2, 2});
                   return {at::conv_transpose1d(a[0], weight.transpose(0, 1)).transpose(1, 2)};
                 }),
          judged("view read before its detached alias is written", view_and_detached,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].exp();
                   a[1].mul_(2);
                   return {y, a[0] * 1};
                 }),
          judged("view read before its detached alias is transposed", view_and_detached,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0] * 3;
                   a[1].t_();
                   return {y};
                 }),
          judged("view read before a view of it is reshaped without grad", lone_view,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor inner = a[0].unsqueeze(1), y = inner * 2;
                   torch::NoGradGuard no_grad;
                   inner.unsqueeze_(0);
                   return {y};
                 }),
          judged("gradient of a written view that is returned, of second order",
                 lone_view_of_non_leaf, [](Tensors& a) -> Tensors { return {a[0].tanh_()}; }),
          judged("second gradient of det with equal singular values", regular_matrices,
                 [](Tensors& a) -> Tensors { return {a[0].det()}; }),
          {"overwritten operand that no gradient asked for needs",
           [](Session& session) {
             session.judge(with_hidden_history,
                           raising_in_backward("modified by an inplace operation"));
           }},
          {"memory made inside with a history from inside, to a custom function",
           [](Session& session) {
             session.judge(leaves({{3}}), [](Tensors& a) -> Tensors {
               const at::Tensor made = torch::zeros({3});
               made.add_(a[0]);
               return {Product::apply(made, a[0])};
             });
             session.judge(leaves({{3}}), [](Tensors& a) -> Tensors {
               const at::Tensor made = torch::tensor({1.0F, 2.0F, 3.0F});
               made.mul_(a[0]);
               return {Product::apply(made, made)};
             });
           }},
          {"closed-over tensor with a history, of which a clone is read, returned and written",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({3}).requires_grad_() * 2; },
                                        [](const at::Tensor& closed, Tensors&) -> Tensors {
                                          return {closed, at::hardtanh(closed.clone())};
                                        }));
           }},
          judged(
              "argument and a strided view of it that a custom function has made",
              [] {
                at::Tensor x = leaf({3, 2});
                return Inputs{{x.slice(0, 1, 3)}, {x}};
              },
              [](Tensors& a) -> Tensors {
                return {a[0], ReturnsView::apply(a[0]).as_strided({2, 2}, {2, 1}, 2)};
              },
              [] {
                Settings settings;
                settings.own_view_nodes = true;
                return settings;
              }()),
          judged(
              "result of a leaf made inside, written further on", leaves({{3}}),
              [](Tensors& a) -> Tensors {
                return {a[0] * 2, a[0].detach().requires_grad_().exp()};
              },
              going_on_from_the_last()),
          judged(
              "view of what a leaf made inside leads to, beside a written argument",
              non_leaves({{3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor inner = a[0].detach().clone().requires_grad_();
                a[0].mul_(2);
                return {a[0].exp(), (inner * 2).narrow(0, 0, 2)};
              },
              going_on_from_the_last()),
          judged(
              "results that lead to no argument, all of them", leaves({{3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor inner = a[0].detach().requires_grad_();
                return {inner * 2, inner.exp()};
              },
              going_on_from_the_last()),
          {"closed-over view and its base, which was written before the trace",
           [](Session& session) {
             session.judge(
                 closing_over_with_view([](const at::Tensor& base, const at::Tensor& view) {
                   const at::Tensor before = base.squeeze();
                   return Tensors{view.sinh(), base};
                 }));
           }},
          {"closed-over view that is written",
           [](Session& session) {
             session.judge(closing_over_with_view([](const at::Tensor&, const at::Tensor& view) {
               view.mul_(0.5);
               return Tensors{};
             }));
           }},
          {"closed-over view to a custom function after a write of its base",
           [](Session& session) {
             Settings settings = refused_with("that the function has written before");
             settings.views_may_renew = true;
             session.judge(
                 closing_over_with_view([](const at::Tensor& base, const at::Tensor& view) {
                   base.detach().mul_(2);
                   return Tensors{Product::apply(view, view)};
                 }),
                 settings);
           }},
          judged(
              "second gradient of a triangular factor's function", leaves({{2}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor x = a[0].repeat({2}).view({2, 2});
                const at::Tensor eye = at::eye(2, x.options().requires_grad(false));
                return {x, at::gelu(at::linalg_cholesky(x.mm(x.t()) + 2 * eye))};
              },
              [] {
                Settings settings;
                settings.sums_may_round = true;
                return settings;
              }()),
          judged("second gradient that vanishes, of a loss that picks one class", leaves({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor x = a[0].flatten().slice(0, 0, 3).view({1, 3});
                   return {at::nll_loss(x, at::zeros({1}, at::kLong))};
                 }),
          judged("mean of losses of a broadcast argument", leaves({{2, 3}, {1, 3}}),
                 [](Tensors& a) -> Tensors {
                   return {at::mse_loss(a[0], a[1]), at::mse_loss(a[1], a[0]),
                           at::huber_loss(a[1], a[0]), at::smooth_l1_loss(a[1], a[0])};
                 }),
          judged("magnitude that is cut off at zero", leaves({{7}}),
                 [](Tensors& a) -> Tensors { return {a[0].abs().relu()}; }),
          judged("number less a function that is left to libtorch", leaves({{2}, {2}}),
                 [](Tensors& a) -> Tensors { return {a[1] * (2.0 - (a[0].abs() + 1).digamma())}; }),
          judged("second gradient of cross_entropy with smoothed labels", leaves({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor loss = at::cross_entropy_loss(a[0], at::arange(2), {},
                                                                  at::Reduction::Sum, -100, 0.1);
                   return {(loss.abs() + 0.5).reciprocal()};
                 }),
          judged(
              "alias of an argument that is reshaped there and back, beside a part of it",
              [] {
                const at::Tensor whole = torch::randn({2, 1});
                return Inputs{{whole.narrow(0, 1, 1), whole}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                const at::Tensor alias = at::alias(a[1]);
                a[1].t_();
                a[1].t_();
                return {alias};
              }),
          judged(
              "trace of a bfloat16 matrix that nobody reads", leaves({{1, 1}}),
              [](Tensors& a) -> Tensors {
                a[0].to(at::kBFloat16).trace();
                return {a[0] * 2};
              },
              raising_what_eager_raises([] { at::ones({1, 1}, at::kBFloat16).trace(); })),
          judged(
              "distances of bfloat16 rows that nobody reads", leaves({{1, 3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor rows = a[0].to(at::kBFloat16);
                at::cdist(rows, rows);
                return {a[0] * 2};
              },
              raising_what_eager_raises([] {
                const at::Tensor rows = at::ones({1, 3}, at::kBFloat16);
                at::cdist(rows, rows);
              })),
          judged(
              "write of a number that does not fit, which nobody reads", plain({{3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor counts = a[0].argmin();
                counts.masked_fill_(counts.ne(0), 1e39);
                return {a[0] * 2};
              },
              raising_what_eager_raises(
                  [] { at::ones({3}, at::kLong).masked_fill_(at::ones({3}, at::kBool), 1e39); })),
          judged("write of a number that does not fit, which eager wraps", plain({{3}}),
                 [](Tensors& a) -> Tensors {
                   a[0].to(at::kHalf).mul(1e39);
                   return {a[0].to(at::kByte).add(300)};
                 }),
          judged(
              "number that does not fit, before a view that nobody may ask for its history",
              leaves({{1, 1}}),
              [](Tensors& a) -> Tensors {
                at::Tensor view;
                {
                  const torch::NoGradGuard no_grad;
                  view = a[0].unsqueeze(0).mul_(1.25);
                }
                at::full({2}, 300.0, at::kChar);
                return {view};
              },
              raising_what_eager_raises([] { at::full({2}, 300.0, at::kChar); })),
          judged(
              "strided view beyond the memory of an argument, which nobody reads", leaves({{1}}),
              [](Tensors& a) -> Tensors {
                a[0].as_strided({2, 2}, {2, 1}, 4);
                return {a[0] * 2};
              },
              raising_what_eager_raises([] { at::ones({1}).as_strided({2, 2}, {2, 1}, 4); })),
          judged(
              "strided view beyond an argument, within its memory",
              [] {
                const at::Tensor whole = torch::randn({12});
                return Inputs{{whole.slice(0, 0, 1)}, {}, {whole}};
              },
              [](Tensors& a) -> Tensors {
                a[0].as_strided({2, 2}, {2, 1}, 4);
                return {a[0].as_strided({2, 2}, {2, 1}, 5) * 2};
              }),
          judged(
              "view of a detached alias that a write gave a history", leaves({{2, 2}}),
              [](Tensors& a) -> Tensors {
                return {a[0].detach().mul_(1.0).sub_(a[0]).movedim(0, 1)};
              },
              refused_with("parted from other results by detach()")),
          judged(
              "view of a detached alias that a write gave a history, beside it", leaves({{2, 2}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor alias = a[0].detach().mul_(1.0).sub_(a[0]);
                return {alias.movedim(0, 1) * 2, alias.movedim(0, 1), alias};
              },
              [] {
                Settings settings;
                settings.own_view_nodes = true;
                return settings;
              }()),
          judged("sum with a derivative that vanishes, of other strides", leaves({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor x = a[0].flatten().repeat({2}).slice(0, 0, 6);
                   const at::Tensor y = x.repeat({2}).view({2, 3, 2});
                   return {(y.abs() + 0.5).rsqrt(), x.view({2, 1, 3}).matmul(y)};
                 }),
          judged(
              "lazy conjugate and negation, resolved and shown as other numbers",
              [] {
                const at::Tensor z = torch::randn({3}, at::kComplexFloat);
                return Inputs{{z.conj(), at::imag(z.conj())}, {}, {z}};
              },
              [](Tensors& a) -> Tensors {
                return {at::view_as_real(a[0].resolve_conj()) * 2,
                        a[1].resolve_neg().view(at::kInt) + 1, at::view_as_real(a[0].clone()) * 2};
              }),
          judged(
              "index out of range that nobody reads",
              [] {
                return Inputs{{torch::randn({3}).requires_grad_(), torch::full({2}, 7)}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                a[0].index_select(0, a[1].to(at::kLong)).sin();
                return {a[0] * 2};
              },
              [] {
                Settings settings;
                settings.raises = "out of range";
                return settings;
              }()),
          judged("gradient by an index of nothing", leaves({{3, 2}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor nothing = at::empty({0}, at::kLong);
                   return {a[0].index_select(0, nothing), a[0].index_select(1, nothing) * 2,
                           a[0].clone().index_add_(0, nothing, at::ones({0, 2})) * 2};
                 }),
          judged(
              "draw into a row of what was expanded, beside what it was expanded from",
              [] {
                const at::Tensor row = torch::randn({4});
                return Inputs{{row, row.expand({2, 4})}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                a[1].slice(0, 1, 2).bernoulli_(0.5);
                return {a[1]};
              },
              refused_with("several of its elements lie at one place")),
          judged(
              "draw into a diagonal of what was expanded, beside what it was expanded from",
              [] {
                const at::Tensor row = torch::randn({3});
                return Inputs{{row, row.expand({2, 3})}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                a[1].diagonal(0, 1, 0).uniform_(-1, 1);
                return {a[0] * 2};
              },
              refused_with("several of its elements lie at one place")),
          judged(
              "empty view at an offset, written and reshaped in place",
              [] {
                const at::Tensor whole = torch::randn({6});
                return Inputs{{whole.slice(0, 4, 4)}, {}, {whole}};
              },
              [](Tensors& a) -> Tensors {
                a[0].mul_(2);
                a[0].unsqueeze_(0);
                return {a[0]};
              }),
          judged("empty part of an argument at an offset, written and reshaped in place",
                 plain({{6}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor part = a[0].slice(0, 4, 4);
                   part.mul_(2);
                   part.unsqueeze_(0);
                   return {part, a[0].slice(0, 5, 5)};
                 }),
          judged("product of three dimensions, beside its transpose", leaves({{2, 3, 4}, {4, 3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].matmul(a[1]);
                   return {y, y.transpose(1, 2)};
                 }),
          judged("transpose of a product of three dimensions, before it and a part of it",
                 leaves({{2, 3, 4}, {4, 3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].matmul(a[1]);
                   return {y.transpose(1, 2), y, y.select(0, 0)};
                 }),
          judged("transpose of a product of three dimensions", leaves({{2, 3, 4}, {4, 3}}),
                 [](Tensors& a) -> Tensors { return {a[0].matmul(a[1]).transpose(1, 2)}; }),
          judged("parts of a product of three dimensions that was written",
                 leaves({{2, 3, 4}, {4, 3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[0].matmul(a[1]);
                   y.select(0, 0).mul_(2);
                   return {y.select(0, 1), y.flatten()};
                 }),
          judged("empty product of a matrix and matrices", leaves({{0, 0}, {5, 0, 0}}),
                 [](Tensors& a) -> Tensors { return {a[0].matmul(a[1])}; }),
          {"closed-over view written without grad in a function that is refused",
           [](Session& session) {
             session.judge(closing_over([] { return torch::randn({}).requires_grad_().t(); },
                                        [](const at::Tensor& closed, Tensors& a) -> Tensors {
                                          at::Tensor(closed._base()).max();
                                          {
                                            const torch::NoGradGuard no_grad;
                                            closed.clamp_min_(-0.5);
                                          }
                                          std::vector<float> number{1.25F};
                                          a[0].clone().mul_(torch::from_blob(number.data(), {}));
                                          return {closed};
                                        }),
                           refused_with("exists only while the function runs"));
           }},
          judged(
              "leaf that gets other sizes without grad", leaves({{2}}),
              [](Tensors& a) -> Tensors {
                {
                  const torch::NoGradGuard no_grad;
                  a[0].unsqueeze_(0);
                }
                return {a[0] * 2};
              },
              refused_with("is a leaf that gets other sizes in place, and a gradient flows to it")),
          judged(
              "largest, smallest and middle element with an infinite gradient",
              [] {
                const at::Tensor x = torch::tensor({0.0F, 2.0F, 0.0F}).requires_grad_();
                return Inputs{{x, torch::tensor({-3.0F, 0.0F, 1.0F}).requires_grad_()}, {x}, {}};
              },
              [](Tensors& a) -> Tensors {
                return {a[0].min().sqrt(), (a[0] - 2).max().abs().sqrt(), a[1].median().sqrt(),
                        a[1].nanmedian().sqrt()};
              }),
          judged(
              "part of an argument that is reshaped, written through a view of it",
              [] {
                const at::Tensor x = torch::randn({1, 3});
                return Inputs{{x, x.squeeze()}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                const at::Tensor before = a[0].select(-2, 0);
                a[1].mul_(0.75);
                a[0].unsqueeze_(0);
                return {before, a[0].select(-1, 1)};
              }),
          judged(
              "part of an argument with a history that is reshaped, written through a view of it",
              [] {
                const at::Tensor leaf = torch::randn({1, 3}).requires_grad_();
                const at::Tensor x = leaf * 2;
                return Inputs{{x, x.squeeze()}, {leaf}, {}};
              },
              [](Tensors& a) -> Tensors {
                const at::Tensor before = a[0].select(-2, 0);
                a[1].mul_(0.75);
                a[0].unsqueeze_(0);
                return {before, a[0].select(-1, 1)};
              },
              refused_with("is a view of a tensor that was reshaped and written in place")),
          judged("many draws into parts with gaps", plain({{4, 7}, {17, 2}, {5, 2, 5}}),
                 [](Tensors& a) -> Tensors {
                   a[0].slice(1, 3, 7).normal_();
                   a[1].select(1, 1).normal_(1, 2);
                   a[2].transpose(0, 2).slice(0, 1, 4).normal_();
                   return {a[0].slice(1, 0, 4).normal_(), a[2].select(1, 0).t().normal_()};
                 }),
          judged("many complex draws into a part with gaps", plain({{4, 4, 2}}),
                 [](Tensors& a) -> Tensors {
                   return {at::view_as_complex(a[0]).slice(1, 0, 3).normal_()};
                 }),
          judged("draw into windows of a transposed argument that were written", plain({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor windows = a[0].t().unfold(-2, 1, 1);
                   windows.div_(2).bernoulli_(0.5);
                   return {windows};
                 }),
          judged(
              "mask that does not fit", plain({{2}}),
              [](Tensors& a) -> Tensors {
                a[0].masked_fill_(torch::ones({2, 4}, at::kBool), 0.5);
                return {a[0]};
              },
              [] {
                Settings settings;
                settings.raises = "tensor a (2) must match the size of tensor b (4)";
                return settings;
              }()),
          judged(
              "outer product of vectors that are none", plain({{2, 2}, {2}, {}}),
              [](Tensors& a) -> Tensors { return {at::addr(a[0], a[1], a[2])}; },
              raises_with("addr: Expected 1-D argument vec2, but got 0-D")),
          judged(
              "outer product whose sum does not fit", plain({{5}, {5}, {4}}),
              [](Tensors& a) -> Tensors { return {at::addr(a[0], a[1], a[2])}; },
              raises_with("The expanded size of the tensor (4) must match the existing size (5)")),
          judged(
              "second gradients of several results, where a norm of equal numbers leaves only "
              "rounding",
              [] {
                const at::Tensor x = torch::randn({1}, at::kDouble).requires_grad_();
                return Inputs{{x}, {x}, {}};
              },
              [](Tensors& a) -> Tensors {
                const at::Tensor x = a[0].repeat({8}).view({2, 4});
                const at::Tensor loss = at::nll_loss(x, at::arange(2).mul(2).remainder(4));
                const at::Tensor y = x.reshape({-1}).slice(0, 0, 6).view({2, 3});
                const at::Tensor weight = y.reshape({-1}).slice(0, 0, 3);
                return {loss, at::layer_norm(at::layer_norm(y, {3}, weight, weight), {3}),
                        loss.sin()};
              },
              [] {
                Settings settings;
                settings.sums_may_round = true;
                return settings;
              }()),
      }};
}

}  // namespace tandem::conformance
