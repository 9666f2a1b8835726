#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "fuzz/custom_functions.h"

#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>

#include <memory>

/// What a view shows of its memory: where it lies there, what counts writes together with it, and
/// what is left of its history when its base has none any more.
namespace tandem::conformance {
namespace {

/// In turn, call by call.
MakeProgram in_turn(const MakeInputs& first, const MakeInputs& second, const Function& function) {
  return [=] {
    auto calls = std::make_shared<int>(0);
    return Program{[=] { return (*calls)++ % 2 == 0 ? first() : second(); }, function};
  };
}

/// One entry for each of the two kinds of arguments.
Settings two_entries() {
  Settings settings;
  settings.traces = settings.epilogue_traces = 2;
  // The first backward with create_graph is an error where the call writes what it reads.
  settings.orders = 0;
  return settings;
}

Inputs view_of_non_leaf() {
  const at::Tensor x = leaf({4}), base = x * 0.5;
  return {{base.view({2, 2})}, {x}, {base}};
}

Inputs leaf_that_is_a_view() {
  const at::Tensor flat = torch::randn({4}), view = flat.view({2, 2}).set_requires_grad(true);
  return {{view}, {view}, {flat}};
}

Inputs view_without_grad() {
  const at::Tensor base = torch::randn({4}), w = leaf({2, 2});
  return {{base.view({2, 2}), w}, {w}, {base}};
}

Inputs tensors_without_and_with_grad() {
  const at::Tensor w = leaf({2, 2});
  return {{torch::randn({2, 2}), w}, {w}};
}

/// A view of the argument is written, and the argument read through it.
Tensors written_through_a_view(Tensors& a) { return {a[0].unsqueeze(0).mul_(0.5).neg()}; }

Tensors written_without_grad(Tensors& a) {
  const at::Tensor view = a[0].view(-1);
  {
    const torch::NoGradGuard no_grad;
    a[0].mul_(0.5);
  }
  return {view * 2, a[0] * 3};
}

Tensors given_a_history(Tensors& a) { return {a[0].mul_(a[1]).neg()}; }

Case both_ways(const std::string& name, const MakeInputs& a, const MakeInputs& b,
               const Function& function) {
  return {name, [=](Session& session) {
            session.judge(in_turn(a, b, function), two_entries());
            session.judge(in_turn(b, a, function), two_entries());
          }};
}

/// Rows in the middle of a matrix.
MakeInputs rows(bool requires_grad) {
  return [=] {
    const at::Tensor x = leaf({4, 3}, requires_grad), base = x * 0.5;
    return Inputs{{base.narrow(0, 1, 2)}, {x}, {base}};
  };
}

Case of_rows(const std::string& name, const Function& function) {
  return {name, [=](Session& session) {
            for (const bool requires_grad : {false, true})
              session.judge(rows(requires_grad), function);
          }};
}

Settings refused_with(const char* words) {
  Settings settings;
  settings.refused = words;
  return settings;
}

/// No gradients of gradients: a second trace begins with a leaf that needs no gradient.
Settings first_order() {
  Settings settings;
  settings.orders = 0;
  return settings;
}

at::Tensor wrapped(double number) { return at::native::wrapped_scalar_tensor(number); }

std::vector<Case> view_or_not() {
  return {
      both_ways("a view, then a tensor of its own", view_of_non_leaf, non_leaves({{2, 2}}),
                written_through_a_view),
      both_ways("a leaf that is a view, then one that is none", leaf_that_is_a_view,
                leaves({{2, 2}}), written_without_grad),
      both_ways("a view that a write gives a history, then a tensor of its own", view_without_grad,
                tensors_without_and_with_grad, given_a_history),
      {"views and other tensors share an entry where nobody writes",
       [](Session& session) {
         session.judge(in_turn(view_of_non_leaf, non_leaves({{2, 2}}),
                               [](Tensors& a) -> Tensors { return {a[0].unsqueeze(0).neg()}; }));
       }},
  };
}

std::vector<Case> places() {
  return {
      of_rows("a strided view of a written argument counts from the memory that came in",
              [](Tensors& a) -> Tensors {
                a[0].mul_(2);
                return {a[0].as_strided({2}, {1}, 5) * 1, a[0]};
              }),
      of_rows("a strided view, taken before the write",
              [](Tensors& a) -> Tensors {
                const at::Tensor part = a[0].as_strided({2, 2}, {3, 1}, 4);
                a[0].mul_(2);
                return {part * 3};
              }),
      judged("a strided view of a written argument is written", rows(false),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               a[0].as_strided({2}, {3}, 4).add_(1);
               return {a[0] * 1};
             }),
      judged("a strided view that counts from where a written argument lies", rows(false),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               return {a[0].as_strided({2}, {1}, a[0].storage_offset() + 1) * 1};
             }),
      judged("windows of a written argument are written", rows(false),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               a[0].unfold(1, 1, 1).select(1, 2).add_(1);
               return {a[0] * 1};
             }),
      judged(
          "a strided view that shows what lies before a written argument", rows(false),
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0].as_strided({2}, {1}, 0) * 1};
          },
          refused_with("shows more of the memory of an input")),
      {"a strided view that nobody reads, of memory that is too short",
       [](Session&) {
         const auto compiled = tandem::compile([](const at::Tensor& x) {
           x.as_strided({2, 2}, {2, 1}, 4);
           return x * 2;
         });
         const at::Tensor whole = torch::randn({4, 2});
         EXPECT_TRUE(at::equal(compiled(whole.narrow(0, 2, 2)), whole.narrow(0, 2, 2) * 2));
         try {
           compiled(whole.narrow(0, 2, 2).clone());
           ADD_FAILURE() << "the view does not fit";
         } catch (const c10::Error& error) {
           EXPECT_NE(std::string(error.what()).find("are out of bounds for storage of size 16"),
                     std::string::npos)
               << error.what();
         }
       }},
  };
}

std::vector<Case> without_base() {
  return {
      judged(
          "a leaf gives up its gradient after a view of it was written", leaves({{6}}),
          [](Tensors& a) -> Tensors {
            const at::Tensor view = a[0].unsqueeze(-1);
            {
              const torch::NoGradGuard no_grad;
              view.mul_(2);
            }
            a[0].requires_grad_(false);
            return {view};
          },
          first_order()),
      judged(
          "the same, and the view is read", leaves({{6}, {6}}),
          [](Tensors& a) -> Tensors {
            const at::Tensor view = a[0].view({2, 3}).t();
            {
              const torch::NoGradGuard no_grad;
              view.mul_(2);
            }
            a[0].requires_grad_(false);
            return {view * a[1].view({3, 2}), a[0] * 2};
          },
          first_order()),
      {"a closed-over view that a custom function is given has no history after a refusal",
       [](Session& session) {
         session.judge(
             [] {
               const at::Tensor base = torch::randn({4}), view = base.view({2, 2});
               return Program{[=] {
                                const at::Tensor x = leaf({2, 2});
                                return Inputs{{x}, {x}, {base, view}};
                              },
                              [=](Tensors& a) -> Tensors {
                                base.add_(a[0].view(-1));
                                return {fuzz::Product::apply(view, a[0]),
                                        std::get<0>(at::unique_dim(a[0].detach(), 0))};
                              }};
             },
             refused_with("unique_dim"));
       }},
      judged("a view of a leaf keeps its gradient after a write", leaves({{6}}),
             [](Tensors& a) -> Tensors {
               const at::Tensor view = a[0].unsqueeze(-1);
               {
                 const torch::NoGradGuard no_grad;
                 view.mul_(2);
               }
               return {view * 3};
             }),
  };
}

std::vector<Case> hidden_views() {
  return {
      {"what reshape() has copied counts writes with what is detached of it",
       [](Session& session) {
         const Function function = [](Tensors& a) -> Tensors {
           const at::Tensor copied = a[0].t().flatten();
           return {copied.detach().requires_grad_(), copied, copied.detach()};
         };
         session.judge(plain({{2, 3}}), function);
         session.judge(non_leaves({{2, 3}}), function);
       }},
      judged("the same of something that is not returned", plain({{2, 3}}),
             [](Tensors& a) -> Tensors {
               const at::Tensor copied = a[0].t().flatten();
               return {copied.detach().requires_grad_(), copied.detach()};
             }),
      judged_both("a product with more than two dimensions and what is detached of it",
                  {{2, 2, 3}, {3, 2}},
                  [](Tensors& a) -> Tensors {
                    const at::Tensor product = a[0].matmul(a[1]);
                    return {product.detach(), product};
                  }),
  };
}

std::vector<Case> numbers() {
  return {
      judged("what is computed of a wrapped number alone", leaves({{2}}),
             [](Tensors& a) -> Tensors {
               const at::Tensor number = wrapped(2.5);
               number.flatten().diag_embed();
               return {a[0] * number.flatten(), at::exp(number) + a[0], number.neg()};
             }),
      judged(
          "a view of a wrapped number is written", leaves({{2}}),
          [](Tensors& a) -> Tensors {
            const at::Tensor number = wrapped(2.5);
            number.flatten().mul_(2);
            return {a[0] * number};
          },
          refused_with("is written in place")),
  };
}

}  // namespace

Category view_memory() {
  Category category{"Views and the memory that they show", {}};
  for (std::vector<Case>& cases :
       std::vector{view_or_not(), places(), without_base(), hidden_views(), numbers()}) {
    for (Case& one : cases) category.cases.push_back(std::move(one));
  }
  return category;
}

}  // namespace tandem::conformance
