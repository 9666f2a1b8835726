#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "fuzz/custom_functions.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

/// Results that lead to different inputs: a backward of one must not get to what lies behind the
/// inputs of another.
namespace tandem::conformance {
namespace {

using fuzz::Product;
using fuzz::SavesInput;

/// The second argument has a history whose saved tensor was written since: it raises.
Inputs with_written_history() {
  const at::Tensor x = torch::randn({3}).requires_grad_(), y = torch::randn({3}).requires_grad_();
  const at::Tensor saved = y.exp(), second = saved * 2;
  saved.add_(1);
  return {{x * 1.5, second}, {x, y}};
}

/// The second argument comes from a custom function, which eager runs on zeros if it is reached
/// without a gradient.
Inputs with_custom_history() {
  const at::Tensor x = torch::randn({3}).requires_grad_(), y = torch::randn({3}).requires_grad_();
  return {{x * 1.5, SavesInput::apply(y)}, {x, y}};
}

Settings raising_in_backward() {
  Settings settings;
  settings.backward_raises = "has been modified by an inplace operation";
  return settings;
}

Tensors one_each(Tensors& a) { return {a[0].sin(), a[1].exp()}; }

/// How many autograd nodes the results of a function have.
size_t nodes_of(const Inputs& inputs, const Function& function) {
  const auto compiled = tandem::compile_boxed(
      [&](Tensors arguments) { return function(arguments); }, {.backend = "eager"});
  const Tensors results = compiled(inputs.arguments);
  std::vector<const torch::autograd::Node*> nodes;
  for (const at::Tensor& result : results) nodes.push_back(result.grad_fn().get());
  std::ranges::sort(nodes);
  return static_cast<size_t>(std::ranges::unique(nodes).begin() - nodes.begin());
}

}  // namespace

Category parted_results() {
  return {
      "Results that lead to different inputs",
      {
          judged("the history of one input raises", with_written_history, one_each,
                 raising_in_backward()),
          judged("one input comes from a custom function", with_custom_history, one_each),
          judged("three results, of which two belong together", with_custom_history,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[1].tanh();
                   return {y * 2, a[0].sigmoid(), y.exp()};
                 }),
          judged("results that are views, and one that is an input", with_custom_history,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor y = a[1] * 2;
                   return {y.view({1, 3}), a[0] * 3, y.slice(0, 1), a[0]};
                 }),
          judged("one input is written", with_custom_history,
                 [](Tensors& a) -> Tensors {
                   const at::Tensor before = a[1].sin();
                   a[0].mul_(2);
                   return {before, a[0].exp()};
                 }),
          judged("a custom function with several inputs joins them", with_custom_history,
                 [](Tensors& a) -> Tensors { return {Product::apply(a[0], a[1]), a[1].sin()}; }),
          judged("with dropped and random gradients", with_custom_history,
                 [](Tensors& a) -> Tensors {
                   return {at::dropout(a[0], 0.5, true), at::dropout(a[1], 0.5, true)};
                 }),
          {"a closed-over tensor has a history that raises",
           [](Session& session) {
             session.judge(
                 [] {
                   const at::Tensor leaf = torch::randn({3}).requires_grad_();
                   const at::Tensor saved = leaf.exp(), closed = saved * 2;
                   saved.add_(1);
                   return Program{
                       [=] {
                         const at::Tensor x = torch::randn({3}).requires_grad_();
                         return Inputs{{x}, {x, leaf}, {closed}};
                       },
                       [=](Tensors& a) -> Tensors { return {closed.sin(), a[0].exp()}; }};
                 },
                 raising_in_backward());
           }},
          {"only what is parted has nodes of its own",
           [](Session&) {
             const Inputs inputs = with_custom_history();
             EXPECT_EQ(nodes_of(inputs, one_each), 2);
             EXPECT_EQ(nodes_of({inputs.leaves}, one_each), 1) << "leaves have no history";
             EXPECT_EQ(nodes_of(inputs,
                                [](Tensors& a) -> Tensors { return {a[0].sin(), a[0].mul(a[1])}; }),
                       1)
                 << "a sum inside is made inside";
           }},
          {"results that share one of their inputs reach the histories of all",
           [](Session&) {
             const Inputs inputs = with_custom_history();
             const auto both =
                 tandem::compile([](const at::Tensor& a,
                                    const at::Tensor& b) { return std::tuple{a.sin(), a * b}; },
                                 {.backend = "eager"});
             const at::Tensor first = std::get<0>(both(inputs.arguments[0], inputs.arguments[1]));
             const Tensors gradients =
                 torch::autograd::grad({first.sum()}, inputs.leaves, {}, {}, false, true);
             EXPECT_TRUE(gradients[0].defined());
             EXPECT_TRUE(gradients[1].defined() && gradients[1].eq(0).all().item<bool>());
           },
           differs("one autograd node has both results; eager does not get to the second input")},
      }};
}

}  // namespace tandem::conformance
