#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "fuzz/custom_functions.h"

/// Which history a view has, and which writes a tensor counts, where the trace has stand-ins of its
/// own or runs twice.
namespace tandem::conformance {
namespace {

using fuzz::Product;
using fuzz::Recomputes;

/// Closes over tensors that are made from one leaf, given one argument that requires grad.
MakeProgram closing_over(std::vector<int64_t> argument, bool leaf_requires_grad,
                         std::function<Tensors(const at::Tensor&)> make,
                         std::function<Tensors(const Tensors&, Tensors&)> function) {
  return [=] {
    const at::Tensor base = torch::randn({4, 2}).set_requires_grad(leaf_requires_grad);
    const Tensors closed = make(base);
    return Program{[=] {
                     const at::Tensor x = torch::randn(argument).requires_grad_();
                     Inputs inputs{{x}, {x, base}, {}};
                     for (const at::Tensor& one : closed) {
                       if (!one.is_same(base)) inputs.watched.push_back(one);
                     }
                     return inputs;
                   },
                   [=](Tensors& a) { return function(closed, a); }};
  };
}

/// The function runs twice for each entry.
Settings run_twice(int64_t entries = 1) {
  Settings settings;
  settings.traces = settings.epilogue_traces = 2 * entries;
  // The first backward with create_graph is an error where the call writes what it reads.
  if (entries > 1) settings.orders = 0;
  return settings;
}

/// A trace for gradients of gradients has copies of the arguments, of which the view is no
/// argument.
Settings first_order() {
  Settings settings;
  settings.orders = 0;
  return settings;
}

Settings raising_in_backward() {
  Settings settings;
  settings.backward_raises = "has been modified by an inplace operation";
  return settings;
}

/// No view of each other for autograd.
Inputs part_and_whole() {
  const at::Tensor x = torch::randn({3});
  return {{x.view({1, 3}).detach(), x}};
}

/// A view of the whole leaf, and the leaf.
Inputs view_and_leaf() {
  const at::Tensor x = torch::randn({2, 2}).requires_grad_();
  return {{x.expand({2, 2}), x}, {x}};
}

}  // namespace

Category view_histories() {
  return {
      "Histories and versions of views and aliases",
      {
          judged(
              "the same view of the base as another argument is", view_and_leaf,
              [](Tensors& a) -> Tensors {
                return {a[1].as_strided({2, 2}, {2, 1}, 0).alias(), a[0] * 1};
              },
              first_order()),
          judged("a view of that argument", view_and_leaf,
                 [](Tensors& a) -> Tensors {
                   return {a[0].as_strided({2, 2}, {2, 1}, 0).alias(), a[1].sin()};
                 }),
          judged("both", view_and_leaf,
                 [](Tensors& a) -> Tensors {
                   return {a[1].as_strided({2, 2}, {2, 1}, 0).alias(), a[0].alias(), a[1].alias()};
                 }),
          judged("a view of a member of a group that is then reshaped and written", part_and_whole,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor view = a[0].permute({1, 0});
                   a[0].unsqueeze_(0).detach().mul_(0.75);
                   return {view};
                 }),
          judged("the same, and the other member is written", part_and_whole,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor view = a[0].select(1, 2), other = a[1].view({3, 1});
                   a[0].t_();
                   a[1].add_(1);
                   return {view, other, a[0].select(0, 1)};
                 }),
          {"a closed-over view gets a history in the second run",
           [](Session& session) {
             session.judge(closing_over(
                               {}, false,
                               [](const at::Tensor& base) -> Tensors {
                                 const at::Tensor one = base.view(-1).select(0, 2);
                                 return {one, one.expand({1})};
                               },
                               [](const Tensors& closed, Tensors& a) -> Tensors {
                                 const at::Tensor written = closed[1].view_as(a[0]);
                                 written.add_(a[0]);
                                 return {written, closed[0] * 2};
                               }),
                           run_twice(2));
           }},
          {"a detached closed-over alias is written, and a custom function saves both",
           [](Session& session) {
             session.judge(
                 closing_over(
                     {2}, true,
                     [](const at::Tensor& base) -> Tensors { return {base.detach(), base}; },
                     [](const Tensors& closed, Tensors& a) -> Tensors {
                       closed[0].mul_(0.5);
                       return {Product::apply(closed[0], closed[1]), a[0] * 2};
                     }),
                 run_twice());
           }},
          {"the same, and written afterwards",
           [](Session& session) {
             Settings settings = raising_in_backward();
             settings.traces = settings.epilogue_traces = 2;
             session.judge(
                 closing_over(
                     {2}, true,
                     [](const at::Tensor& base) -> Tensors { return {base.detach(), base}; },
                     [](const Tensors& closed, Tensors& a) -> Tensors {
                       closed[0].mul_(0.5);
                       const at::Tensor y = Product::apply(closed[0], closed[1]);
                       closed[0].mul_(2);
                       return {y, a[0] * 2};
                     }),
                 settings);
           }},
          {"a custom function saves what torch::empty gave, and it is written afterwards",
           [](Session& session) {
             session.judge(
                 leaves({{6}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = torch::empty({6}).fill_(0.25);
                   y.sub_(a[0]);
                   const at::Tensor z = Recomputes::apply(y);
                   y.select(0, 3).add_(1.25);
                   return {z};
                 },
                 raising_in_backward());
           }},
          judged("the same, and it is not written afterwards", leaves({{100}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = torch::empty({100}).fill_(0.25);
                   y.sub_(a[0]);
                   return {Recomputes::apply(y), y};
                 }),
      }};
}

}  // namespace tandem::conformance
