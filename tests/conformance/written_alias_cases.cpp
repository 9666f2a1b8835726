#include "conformance/categories.h"
#include "conformance/inputs.h"

/// Tensors on the memory of an input that autograd does not know to be related to it, or that were
/// written before they are compared with others.
namespace tandem::conformance {
namespace {

Settings refused_with(const char* words) {
  Settings settings;
  settings.refused = words;
  return settings;
}

}  // namespace

Category written_aliases() {
  return {
      "Aliases of inputs that are written",
      {
          judged(
              "view of a detached alias that was written with grad", leaves({{2, 3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor alias = a[0].detach().mul_(0.5);
                return {alias.sub_(a[0] * 3).t()};
              },
              refused_with("parted from other results by detach()")),
          judged("detached alias that was written with grad, and a view of it", leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   const at::Tensor alias = a[0].detach().add_(a[0] * 3);
                   return {alias, alias.t(), a[0] * 2};
                 }),
          judged(
              "view beside a detached alias that is written by it",
              [] {
                const at::Tensor leaf = torch::randn({3}).requires_grad_(), view = leaf.view({3});
                return Inputs{{view.detach(), view}, {leaf}, {}};
              },
              [](Tensors& a) -> Tensors {
                a[0].mul_(2).add_(a[1].mul(3).detach());
                a[0].add_(a[1] * 2);
                return {a[1].repeat({2})};
              }),
          judged(
              "alias of another argument, resized by an out argument",
              [] {
                const at::Tensor x = torch::randn({3});
                return Inputs{{x, x.detach()}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                const at::Tensor twice = a[1].repeat({2});
                at::add_out(a[1], twice, twice);
                return {a[1]};
              },
              refused_with("an op resizes what it fills")),
          judged(
              "list that writes an argument and, after it was written, a part of it",
              [] { return Inputs{{torch::randn({2, 2}).select(-1, 1)}, {}, {}}; },
              [](Tensors& a) -> Tensors {
                const at::Tensor part = a[0].split(1, 0)[1];
                a[0].clamp_min_(1.25);
                at::_foreach_add_({a[0], part}, 1);
                return {part};
              },
              refused_with("writes the same memory twice")),
          judged(
              "view of one element, written by what it is a view of",
              [] {
                const at::Tensor part = torch::randn({1}).unsqueeze(-2).diagonal(0, 1, 0);
                return Inputs{{part, torch::randn({1})}, {}, {}};
              },
              [](Tensors& a) -> Tensors {
                const at::Tensor same = a[0].expand_as(a[0] + a[1]);
                same.add_(same);
                a[0].mul_(same);
                return {a[1] * 2};
              }),
      }};
}

}  // namespace tandem::conformance
