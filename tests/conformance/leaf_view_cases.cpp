#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

#include <memory>

/// Leaves that are views: of a tensor that needs no gradient (parameters that are slices of one
/// flat tensor), and of one that does, taken without grad mode.
namespace tandem::conformance {
namespace {

at::Tensor leaf_view(const at::Tensor& view) { return view.set_requires_grad(true); }

/// Two slices of one flat tensor.
Inputs slices() {
  const at::Tensor flat = torch::randn({8});
  Inputs inputs{{leaf_view(flat.slice(0, 0, 4)), leaf_view(flat.slice(0, 4, 8))}, {}, {flat}};
  inputs.leaves = inputs.arguments;
  return inputs;
}

/// The flat tensor, two slices of it, and a leaf of its own.
Inputs flat_and_slices() {
  Inputs inputs = slices();
  const at::Tensor flat = inputs.watched[0];
  inputs.arguments.insert(inputs.arguments.begin(), flat);
  inputs.arguments.push_back(leaf({8}));
  inputs.leaves.push_back(inputs.arguments.back());
  return inputs;
}

Inputs overlapping_slices() {
  const at::Tensor flat = torch::randn({8});
  Inputs inputs{{leaf_view(flat.slice(0, 0, 5)), leaf_view(flat.slice(0, 3, 8))}, {}, {flat}};
  inputs.leaves = inputs.arguments;
  return inputs;
}

/// A slice, the other one, and an alias of the first that autograd does not know.
Inputs slices_and_alias() {
  Inputs inputs = slices();
  inputs.arguments.push_back(inputs.arguments[0].detach());
  return inputs;
}

Inputs matrix_and_flat() {
  const at::Tensor flat = torch::arange(4, torch::kFloat);
  const at::Tensor matrix = leaf_view(flat.view({2, 2}));
  return {{matrix, flat}, {matrix}, {}};
}

/// A view of a tensor with grad that was taken without: it says that it requires grad, and no
/// gradient arrives anywhere.
Inputs taken_without_grad() {
  const at::Tensor p = leaf({4}), base = p * 1.5;
  at::Tensor view;
  {
    const torch::NoGradGuard no_grad;
    view = base.view({2, 2});
  }
  return {{view}, {p}, {base}};
}

Inputs base_and_taken_without_grad() {
  Inputs inputs = taken_without_grad();
  inputs.arguments.push_back(inputs.watched[0]);
  return inputs;
}

Inputs square_leaf() {
  Inputs inputs{{leaf({2, 2})}};
  inputs.leaves = inputs.arguments;
  return inputs;
}

/// The view keeps its history when its base lets go of its own.
Inputs base_detached_since() {
  const at::Tensor p = leaf({8}), base = p * 1.5;
  const at::Tensor a = base.slice(0, 0, 5), b = base.slice(0, 3, 8);
  base.detach_();
  return {{a, b}, {p}, {base}};
}

Tensors products(Tensors& a) { return {a[0] * 2, (a[0] * a[1]).sum()}; }

/// A module whose parameters are slices of one flat tensor.
struct FlatModule : torch::nn::Module {
  explicit FlatModule(bool overlap)
      : flat(torch::randn({12})),
        weight(register_parameter("weight", flat.slice(0, 0, 6).view({2, 3}))),
        bias(register_parameter("bias", flat.slice(0, overlap ? 5 : 6, overlap ? 7 : 8))) {}

  at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight, bias); }

  at::Tensor flat, weight, bias;
};

/// A function of such a module and of what is passed.
MakeProgram with_module(std::function<Tensors(FlatModule&, Tensors&)> function,
                        bool overlap = false) {
  return [=] {
    auto net = std::make_shared<FlatModule>(overlap);
    return Program{[net] {
                     Inputs inputs{{leaf({4, 3})}, {net->weight, net->bias}, {net->flat}};
                     inputs.leaves.push_back(inputs.arguments[0]);
                     return inputs;
                   },
                   [=](Tensors& a) { return function(*net, a); }};
  };
}

Settings traced(int64_t traces) {
  Settings settings;
  settings.traces = settings.epilogue_traces = traces;
  return settings;
}

Settings raising(const char* words) {
  Settings settings;
  settings.raises = words;
  return settings;
}

Settings raising_in_backward(const char* words) {
  Settings settings;
  settings.backward_raises = words;
  return settings;
}

Settings without_grad_mode(Settings settings = {}) {
  settings.around = in_no_grad_mode;
  return settings;
}

Tensors written_through_flat(Tensors& a) {
  const at::Tensor before = a[1] * 2;
  {
    const torch::NoGradGuard no_grad;
    a[0].mul_(3);
  }
  return {before, a[1] + a[2]};
}

Tensors first_written(Tensors& a) {
  const at::Tensor before = a[0].exp() + a[1].sum();
  {
    const torch::NoGradGuard no_grad;
    a[0].mul_(3);
  }
  return {before, a[0] * 2, a[1] * 5};
}

std::vector<Case> arguments() {
  return {
      judged("two slices are read", slices, products),
      judged("slices and their flat tensor are read", flat_and_slices,
             [](Tensors& a) -> Tensors { return {a[0] * 2, a[1] * a[2], a[0] * a[3]}; }),
      judged("overlapping slices are read", overlapping_slices, products),
      judged("a slice is written without grad", slices, first_written),
      judged("overlapping slices, one written without grad", overlapping_slices, first_written),
      judged("slices and an alias of one, which is written", slices_and_alias,
             [](Tensors& a) -> Tensors {
               const at::Tensor before = a[0].exp() + a[1].sum();
               a[2].mul_(3);
               return {before, a[0] * 2, a[1] * 5};
             }),
      judged("the flat tensor is written without grad", flat_and_slices, written_through_flat),
      judged("the flat tensor is written without grad, view of a slice returned", flat_and_slices,
             [](Tensors& a) -> Tensors {
               const torch::NoGradGuard no_grad;
               a[0].mul_(3);
               return {a[1].view({2, 2}), a[2]};
             }),
      judged("the flat tensor is written from a leaf", flat_and_slices,
             [](Tensors& a) -> Tensors {
               a[0].mul_(a[3]);
               return {a[1] + a[2], a[0] * 2};
             }),
      judged(
          "the flat tensor is written from a leaf, a slice was read before", flat_and_slices,
          [](Tensors& a) -> Tensors {
            const at::Tensor before = a[1] * 2;
            a[0].mul_(a[3]);
            return {before};
          },
          raising_in_backward("leaf variable has been moved into the graph interior")),
      judged("all is written in a call without grad", flat_and_slices, written_through_flat,
             without_grad_mode()),
      judged("overlapping slices, one written in a call without grad", overlapping_slices,
             first_written, without_grad_mode()),
      judged("a slice is transposed, the flat tensor is written", matrix_and_flat,
             [](Tensors& a) -> Tensors {
               const at::Tensor before = a[0].exp();
               const torch::NoGradGuard no_grad;
               a[0].t_();
               a[1].mul_(3);
               return {before};
             }),
      judged("a view of arange and its base", matrix_and_flat,
             [](Tensors& a) -> Tensors { return {(a[0] * a[0]).sum(), a[1] * 2}; }),
      judged(
          "a slice is written in grad mode", flat_and_slices,
          [](Tensors& a) -> Tensors {
            a[0].add_(1);
            a[1].mul_(2);
            return {a[1] * 2};
          },
          raising("a view of a leaf Variable that requires grad is being used in an in-place")),
      judged("views whose base was detached since", base_detached_since, products),
      judged("views whose base was detached since, one written", base_detached_since,
             [](Tensors& a) -> Tensors {
               const at::Tensor before = a[1].exp();
               const torch::NoGradGuard no_grad;
               a[0].mul_(3);
               return {before, a[0] * 2, a[1] * 2};
             }),
  };
}

/// What is taken of a leaf that is a view is, for autograd, a view of the flat tensor.
std::vector<Case> views_of_slices() {
  const auto taken_without_grad = [](const at::Tensor& slice) {
    const torch::NoGradGuard no_grad;
    return slice.view({2, 2});
  };
  Settings strided;
  strided.own_view_nodes = true;
  return {
      judged("a view of a slice, taken without grad, is written in grad mode", slices,
             [=](Tensors& a) -> Tensors {
               taken_without_grad(a[0]).mul_(3);
               return {a[1] * 2};
             }),
      judged("a view of a slice, taken without grad, is computed with", slices,
             [=](Tensors& a) -> Tensors { return {taken_without_grad(a[0]) * 2, a[1] * 2}; }),
      judged("a view of a slice, taken and written without grad, is returned", slices,
             [](Tensors& a) -> Tensors {
               const torch::NoGradGuard no_grad;
               return {a[0].view({2, 2}).mul_(3)};
             }),
      judged(
          "a view of a leaf of its own, taken without grad, is written from a leaf",
          leaves({{4}, {2, 2}}),
          [=](Tensors& a) -> Tensors {
            taken_without_grad(a[0]).mul_(a[1].view({2, 2}));
            return {a[1] * 2};
          },
          raising("A view was created in no_grad mode and is being modified inplace with grad")),
      judged(
          "a view of a slice, taken without grad, is written from a leaf", slices,
          [=](Tensors& a) -> Tensors {
            taken_without_grad(a[0]).mul_(a[1].view({2, 2}));
            return {a[1] * 2};
          },
          raising("A view was created in no_grad mode and is being modified inplace with grad")),
      judged("a view of a slice that is written after it", slices,
             [](Tensors& a) -> Tensors {
               const at::Tensor view = a[0].view({2, 2});
               a[0].detach().mul_(3);
               return {view * 2, view.exp() + a[1].sum()};
             }),
      judged(
          "a view of a slice that is written after it is returned", slices,
          [](Tensors& a) -> Tensors {
            const at::Tensor view = a[0].view({2, 2});
            a[0].detach().mul_(3);
            return {view, view.select(0, 1), a[0].view({4, 1}), a[1] * 2};
          },
          strided),
      judged(
          "a view of a slice, the flat tensor is written after it", flat_and_slices,
          [](Tensors& a) -> Tensors {
            const at::Tensor view = a[1].expand({2, 4});
            {
              const torch::NoGradGuard no_grad;
              a[0].mul_(3);
            }
            return {view.index_select(1, at::arange(2)), a[1].expand({2, 4}), view};
          },
          strided),
      {"a view of a closed-over slice, taken without grad",
       [=](Session& session) {
         session.judge(with_module([=](FlatModule& net, Tensors& a) -> Tensors {
           at::Tensor view;
           {
             const torch::NoGradGuard no_grad;
             view = net.weight.t();
           }
           view.mul_(2);
           return {view * 2, a[0] * 3};
         }));
       }},
  };
}

std::vector<Case> modules() {
  return {
      {"parameters that are slices are read",
       [](Session& session) {
         session.judge(with_module(
             [](FlatModule& net, Tensors& a) -> Tensors { return {net.forward(a[0])}; }));
       }},
      {"parameters that overlap are read",
       [](Session& session) {
         session.judge(with_module(
             [](FlatModule& net, Tensors& a) -> Tensors { return {net.forward(a[0])}; }, true));
       }},
      {"parameters that are slices are stepped inside",
       [](Session& session) {
         session.judge(with_module([](FlatModule& net, Tensors& a) -> Tensors {
           const at::Tensor y = (net.weight * 2).sum() + net.bias.exp() * a[0].sum();
           const torch::NoGradGuard no_grad;
           net.weight.sub_(0.5);
           net.bias.mul_(0.5);
           return {y};
         }));
       }},
      {"parameters that are slices are stepped through their flat tensor",
       [](Session& session) {
         session.judge(with_module([](FlatModule& net, Tensors& a) -> Tensors {
                         const at::Tensor y = (net.weight * 2).sum() + net.bias.exp() * a[0].sum();
                         {
                           const torch::NoGradGuard no_grad;
                           net.flat.mul_(0.5);
                         }
                         return {y, a[0] * 2};
                       }),
                       traced(2));
       }},
      {"parameters that are slices are stepped while they are needed",
       [](Session& session) {
         Settings settings = raising_in_backward("modified by an inplace operation");
         session.judge(with_module([](FlatModule& net, Tensors& a) -> Tensors {
                         const at::Tensor y = net.forward(a[0]);
                         const torch::NoGradGuard no_grad;
                         net.weight.mul_(0.5);
                         return {y, a[0] * 2};
                       }),
                       settings);
       }},
      {"parameters that are slices are stepped through data()",
       [](Session& session) {
         Settings settings = traced(2);
         settings.orders = 0;  // a second trace finds other memory behind data()
         session.judge(with_module([](FlatModule& net, Tensors& a) -> Tensors {
                         const at::Tensor y = net.forward(a[0]);
                         net.bias.data().sub_(0.5);
                         return {y, a[0] * 2};
                       }),
                       settings);
       }},
  };
}

std::vector<Case> without_grad() {
  const auto doubled = [](Tensors& a) -> Tensors { return {a[0] * 2}; };
  return {
      judged("a view taken without grad", taken_without_grad, doubled),
      judged("a view taken without grad and its base", base_and_taken_without_grad,
             [](Tensors& a) -> Tensors { return {a[0] * 2, a[1] * 3, a[0].view(-1) * a[1]}; }),
      {"a view taken without grad, then a leaf",
       [=](Session& session) {
         session.judge(
             [=] {
               auto calls = std::make_shared<int>(0);
               return Program{
                   [=] { return (*calls)++ % 2 == 0 ? taken_without_grad() : square_leaf(); },
                   doubled};
             },
             traced(2));
       }},
      {"a leaf, then a view taken without grad",
       [=](Session& session) {
         session.judge(
             [=] {
               auto calls = std::make_shared<int>(0);
               return Program{
                   [=] { return (*calls)++ % 2 == 1 ? taken_without_grad() : square_leaf(); },
                   doubled};
             },
             traced(2));
       }},
      {"a view taken without grad is closed over",
       [](Session& session) {
         session.judge([] {
           const Inputs closed = taken_without_grad();
           return Program{[=] {
                            Inputs inputs = square_leaf();
                            inputs.leaves.push_back(closed.leaves[0]);
                            inputs.watched = closed.arguments;
                            return inputs;
                          },
                          [=](Tensors& a) -> Tensors {
                            return {a[0] * closed.arguments[0], closed.arguments[0].exp()};
                          }};
         });
       }},
  };
}

}  // namespace

Category leaf_views() {
  Category category{"Leaves that are views", {}};
  for (std::vector<Case>& cases :
       std::vector{arguments(), views_of_slices(), modules(), without_grad()}) {
    for (Case& one : cases) category.cases.push_back(std::move(one));
  }
  return category;
}

}  // namespace tandem::conformance
