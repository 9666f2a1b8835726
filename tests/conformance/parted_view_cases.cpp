#include "conformance/categories.h"
#include "conformance/inputs.h"

/// Views of one tensor that do not overlap. A write to one of them changes the history of the
/// others, wherever they come from.
namespace tandem::conformance {
namespace {

using MakeViews = std::function<Tensors(const at::Tensor&)>;
/// Of closed-over tensors and arguments.
using Body = std::function<Tensors(const Tensors& closed, Tensors& arguments)>;

Tensors halves(const at::Tensor& base) { return {base.slice(0, 0, 2), base.slice(0, 2, 4)}; }

Tensors part_and_nothing(const at::Tensor& base) {
  return {base.slice(0, 0, 2), base.slice(0, 2, 2)};
}

/// What another dtype is seen as cannot be a view of the base in a trace.
Tensors real_and_complex_half(const at::Tensor& base) {
  return {base.slice(0, 0, 2), at::view_as_complex(base.slice(0, 2, 4))};
}

/// The function closes over views of what a leaf was multiplied to.
MakeProgram closing_over(MakeViews views, Body body) {
  return [=] {
    const at::Tensor leaf = torch::randn({4, 2}).requires_grad_(), base = leaf * 1.5;
    const Tensors closed = views(base);
    return Program{[=] {
                     const at::Tensor x = torch::randn({2, 2}).requires_grad_();
                     Inputs inputs{{x}, {leaf, x}, closed};
                     inputs.watched.push_back(base);
                     return inputs;
                   },
                   [=](Tensors& a) { return body(closed, a); }};
  };
}

/// The function runs again when the first run has shown what belongs together. Each call adds to
/// the history of what is closed over, and the first one has kept no copy for gradients of
/// gradients.
Settings run_twice() {
  Settings settings;
  settings.traces = settings.epilogue_traces = 2;
  settings.orders = 0;
  return settings;
}

Case closed_over(std::string name, MakeViews views, Body body) {
  return {std::move(name),
          [=](Session& session) { session.judge(closing_over(views, body), run_twice()); }};
}

/// One view is an argument, the other is closed over.
MakeProgram half_and_half(Body body) {
  return [=] {
    const at::Tensor leaf = torch::randn({4, 2}).requires_grad_(), base = leaf * 1.5;
    const Tensors both = halves(base);
    return Program{[=] { return Inputs{{both[0]}, {leaf}, {both[1], base}}; },
                   [=](Tensors& a) { return body({both[1]}, a); }};
  };
}

Inputs as_arguments(const MakeViews& views) {
  const at::Tensor leaf = torch::randn({4, 2}).requires_grad_(), base = leaf * 1.5;
  return {views(base), {leaf}, {base}};
}

Settings refused() {
  Settings settings;
  settings.refused = "is written and is a view of the same tensor as argument 0";
  return settings;
}

/// The caller is in no-grad mode. Only the run shows that a write gives views another history.
Settings called_without_grad(int64_t traces) {
  Settings settings = run_twice();
  settings.traces = settings.epilogue_traces = traces;
  settings.around = in_no_grad_mode;
  return settings;
}

/// Views of a tensor without grad, and what gives one of them a history.
Inputs halves_without_grad() {
  const at::Tensor base = torch::randn({4, 2}), leaf = torch::randn({2, 2}).requires_grad_();
  Inputs inputs{halves(base), {leaf}, {base}};
  inputs.arguments.push_back(leaf);
  return inputs;
}

Tensors write_first_with_grad(Tensors& a) {
  const at::AutoGradMode grad_mode(true);
  return {a[0].tanh_(), a[1].sin()};
}

Tensors write_both(const Tensors& closed, Tensors& a) {
  const at::Tensor first = closed[0].unsqueeze(0).mul_(0.75);
  closed[1].mul_(2);
  return {first, a[0] * 2};
}

}  // namespace

Category parted_views() {
  return {
      "Views of one tensor that do not overlap",
      {
          closed_over("closed-over halves, both written", halves, write_both),
          closed_over("closed-over part and nothing, both written", part_and_nothing, write_both),
          closed_over("closed-over halves, one written and the other read", halves,
                      [](const Tensors& closed, Tensors& a) -> Tensors {
                        closed[0].add_(a[0]);
                        return {closed[1] * 3, closed[0] * 2};
                      }),
          closed_over("closed-over halves, one written without grad", halves,
                      [](const Tensors& closed, Tensors& a) -> Tensors {
                        const at::Tensor before = closed[1].exp();
                        {
                          const torch::NoGradGuard no_grad;
                          closed[0].mul_(2);
                        }
                        return {before, closed[1].sin(), a[0] * closed[0]};
                      }),
          {"argument and closed-over half, both written",
           [](Session& session) {
             session.judge(half_and_half([](const Tensors& closed, Tensors& a) -> Tensors {
                             a[0].mul_(0.5);
                             closed[0].mul_(2);
                             return {closed[0] * 3, a[0] + 1};
                           }),
                           run_twice());
           }},
          {"argument and closed-over half, one written and the other read",
           [](Session& session) {
             session.judge(half_and_half([](const Tensors& closed, Tensors& a) -> Tensors {
                             a[0].mul_(0.5);
                             return {closed[0] * 3, a[0] + 1};
                           }),
                           run_twice());
           }},
          judged(
              "arguments, both written", [] { return as_arguments(halves); },
              [](Tensors& a) -> Tensors {
                a[0].mul_(0.5);
                a[1].mul_(2);
                return {a[0].exp(), a[1].sin()};
              }),
          judged(
              "arguments of two dtypes, both written",
              [] { return as_arguments(real_and_complex_half); },
              [](Tensors& a) -> Tensors {
                a[0].mul_(0.5);
                a[1].mul_(2);
                return {a[0].exp(), at::view_as_real(a[1]).sin()};
              },
              refused()),
          judged(
              "arguments of two dtypes, the real one written",
              [] { return as_arguments(real_and_complex_half); },
              [](Tensors& a) -> Tensors {
                a[0].mul_(0.5);
                return {a[0].exp(), at::view_as_real(a[1]).sin()};
              }),
          judged(
              "arguments of two dtypes, the complex one written",
              [] { return as_arguments(real_and_complex_half); },
              [](Tensors& a) -> Tensors {
                a[1].mul_(2);
                return {a[0].exp(), at::view_as_real(a[1]).sin()};
              },
              refused()),
          judged(
              "complex argument on a real tensor, written",
              [] {
                const at::Tensor leaf = torch::randn({4, 2}).requires_grad_();
                const at::Tensor base = leaf * 1.5;
                return Inputs{{at::view_as_complex(base.slice(0, 2, 4))}, {leaf}, {base}};
              },
              [](Tensors& a) -> Tensors {
                a[0].mul_(2);
                return {at::view_as_real(a[0]).sin()};
              }),
          judged(
              "arguments of two dtypes, read", [] { return as_arguments(real_and_complex_half); },
              [](Tensors& a) -> Tensors { return {a[0].exp(), at::view_as_real(a[1]).sin()}; }),
          judged(
              "arguments, one written in grad mode by a call without",
              [] { return as_arguments(halves); }, write_first_with_grad, called_without_grad(2)),
          judged(
              "arguments, one written in grad mode by a call without, the other returned",
              [] { return as_arguments(halves); },
              [](Tensors& a) -> Tensors {
                const at::AutoGradMode grad_mode(true);
                a[0].tanh_();
                return {a[1]};
              },
              called_without_grad(2)),
          judged(
              "arguments without grad, one given a history by a call without grad mode",
              halves_without_grad,
              [](Tensors& a) -> Tensors {
                const at::AutoGradMode grad_mode(true);
                a[0].mul_(a[2]);
                return {a[1].sin(), a[0] * 2};
              },
              called_without_grad(2)),
          {"closed-over halves, one written in grad mode by a call without",
           [](Session& session) {
             session.judge(closing_over(halves,
                                        [](const Tensors& closed, Tensors& a) -> Tensors {
                                          const at::AutoGradMode grad_mode(true);
                                          closed[0].mul_(0.5);
                                          return {closed[1].sin(), closed[0] * a[0]};
                                        }),
                           called_without_grad(2));
           }},
          judged(
              "a lone half, written in grad mode by a call without",
              [] {
                Inputs inputs = as_arguments(halves);
                inputs.arguments.pop_back();
                return inputs;
              },
              [](Tensors& a) -> Tensors {
                const at::AutoGradMode grad_mode(true);
                const at::Tensor before = a[0].exp();
                return {a[0].tanh_(), before};
              },
              called_without_grad(2)),
          // Without grad mode a write gives nobody a history: no second run.
          judged(
              "arguments, one written by a call without grad mode",
              [] { return as_arguments(halves); },
              [](Tensors& a) -> Tensors {
                a[0].tanh_();
                const at::AutoGradMode grad_mode(true);
                return {a[0].sin(), a[1].exp()};
              },
              called_without_grad(1)),
          // Nobody writes: no second run.
          {"closed-over halves, read",
           [](Session& session) {
             session.judge(closing_over(halves, [](const Tensors& closed, Tensors& a) -> Tensors {
               return {closed[0].exp(), closed[1] * a[0]};
             }));
           }},
      }};
}

}  // namespace tandem::conformance
