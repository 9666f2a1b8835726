#include "conformance/categories.h"
#include "conformance/inputs.h"

/// Views that a function closes over and writes. Before each call the caller gives their base
/// other data and another history, so that gradients of a call do not lead into the call before.
namespace tandem::conformance {
namespace {

using MakeViews = std::function<Tensors(const at::Tensor&)>;
/// Of the closed-over views and the argument.
using Body = std::function<Tensors(const Tensors& closed, const at::Tensor& x)>;

Tensors one_row(const at::Tensor& base) { return {base.slice(0, 0, 1)}; }
Tensors all_rows(const at::Tensor& base) { return {base.slice(0, 0, 2)}; }
Tensors both_rows(const at::Tensor& base) { return {base.slice(0, 0, 1), base.slice(0, 1, 2)}; }
Tensors no_view(const at::Tensor& base) { return {base}; }

/// In float64: gradients of gradients are compared to the third order.
MakeProgram closing_over(MakeViews views, Body body) {
  return [=] {
    const at::Tensor base = torch::randn({2, 3}, at::kDouble).requires_grad_() * 1.5;
    const Tensors closed = views(base);
    return Program{[=] {
                     const at::Tensor leaf = torch::randn({2, 3}, at::kDouble).requires_grad_();
                     const at::Tensor x = torch::randn({1, 3}, at::kDouble).requires_grad_();
                     base.detach_();
                     base.copy_(torch::randn({2, 3}, at::kDouble));
                     base.mul_(leaf);
                     Inputs inputs{{x}, {leaf, x}, closed};
                     inputs.watched.push_back(base);
                     return inputs;
                   },
                   [=](Tensors& a) { return body(closed, a[0]); }};
  };
}

Case closed_over(std::string name, MakeViews views, Body body, Settings settings = {}) {
  return {std::move(name),
          [=](Session& session) { session.judge(closing_over(views, body), settings); }};
}

/// A gradient that arrives through a result and through what was written is summed outside.
Settings summed() {
  Settings settings;
  settings.sums_may_round = true;
  return settings;
}

/// Only the run shows that the two are views of one tensor.
Settings run_twice() {
  Settings settings = summed();
  settings.traces = settings.epilogue_traces = 2;
  return settings;
}

Tensors read_and_write(const Tensors& closed, const at::Tensor& x) {
  const at::Tensor before = closed[0].exp();
  closed[0].mul_(2);
  return {before * x};
}

}  // namespace

Category closed_over_views() {
  return {"Closed-over views that are written",
          {
              closed_over("read, then written", one_row, read_and_write),
              closed_over("all of the base, read, then written", all_rows, read_and_write),
              closed_over(
                  "written by what was read", one_row,
                  [](const Tensors& closed, const at::Tensor& x) -> Tensors {
                    const at::Tensor before = closed[0].exp();
                    closed[0].add_(before);
                    return {before * x, closed[0].sin()};
                  },
                  summed()),
              closed_over("what a formula does not read, written", one_row,
                          [](const Tensors& closed, const at::Tensor& x) -> Tensors {
                            const at::Tensor before = closed[0].repeat({2, 1});
                            closed[0].copy_(before.slice(0, 1, 2));
                            return {before + x};
                          }),
              closed_over("written without grad", one_row,
                          [](const Tensors& closed, const at::Tensor& x) -> Tensors {
                            const at::Tensor before = closed[0].exp();
                            {
                              const torch::NoGradGuard no_grad;
                              closed[0].mul_(2);
                            }
                            return {before, closed[0].sin() * x};
                          }),
              closed_over(
                  "two rows, one written by the other", both_rows,
                  [](const Tensors& closed, const at::Tensor& x) -> Tensors {
                    const at::Tensor before = closed[1].exp();
                    closed[0].mul_(before * x);
                    return {before, closed[1].sin(), closed[0] * closed[1]};
                  },
                  run_twice()),
              // No group and no view: what is not written, and a base.
              closed_over("read only", one_row,
                          [](const Tensors& closed, const at::Tensor& x) -> Tensors {
                            return {closed[0].exp() * x, closed[0].sin()};
                          }),
              closed_over("the base itself, read, then written", no_view, read_and_write),
          }};
}

}  // namespace tandem::conformance
