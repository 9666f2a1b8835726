#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

#include <memory>

/// Writes, views, overlaps, modes and randomness in combinations that no single rule covers.
namespace tandem::conformance {
namespace {

Settings refused(std::string words) {
  Settings settings;
  settings.refused = std::move(words);
  return settings;
}

Settings raising(std::string words) {
  Settings settings;
  settings.raises = std::move(words);
  return settings;
}

/// Views of one tensor, which is watched; with grad the tensor is a non-leaf.
using MakeViews = std::function<Tensors(const at::Tensor&)>;
MakeInputs views_of(std::vector<int64_t> base, MakeViews views, bool requires_grad) {
  return [=] {
    at::Tensor p = leaf(base, requires_grad), b = p * 1.5;
    return Inputs{views(b), {p}, {b}};
  };
}

Case views_judged(std::string name, std::vector<int64_t> base, MakeViews views, Function program) {
  return {std::move(name), [=](Session& session) {
            session.judge(views_of(base, views, true), program);
            session.judge(views_of(base, views, false), program);
          }};
}

std::vector<Case> shared_memory() {
  const MakeViews rows = [](const at::Tensor& b) -> Tensors { return {b[0], b[1]}; };
  return {
      views_judged("two rows, one written", {2, 4}, rows,
                   [](Tensors& a) -> Tensors {
                     a[0].mul_(2);
                     return {a[1] * 3, a[0] + 1};
                   }),
      views_judged("two rows, both written, both returned", {2, 4}, rows,
                   [](Tensors& a) -> Tensors {
                     a[0].mul_(2);
                     a[1].add_(a[0]);
                     return {a[1], a[0].view({2, 2})};
                   }),
      views_judged("two rows, one written without grad mode", {2, 4}, rows,
                   [](Tensors& a) -> Tensors {
                     {
                       const torch::NoGradGuard no_grad;
                       a[0].mul_(2);
                     }
                     return {a[0] * a[1]};
                   }),
      views_judged(
          "base, row and element; the element written", {2, 4},
          [](const at::Tensor& b) -> Tensors { return {b, b[1], b[1][2]}; },
          [](Tensors& a) -> Tensors {
            a[2].add_(3);
            return {a[0] * 2, a[1].sum()};
          }),
      views_judged(
          "base and two rows, the base written", {2, 4},
          [](const at::Tensor& b) -> Tensors { return {b, b[0], b[1]}; },
          [](Tensors& a) -> Tensors {
            a[0].mul_(3);
            return {a[1] + a[2], a[1].view({2, 2})};
          }),
      views_judged(
          "tensor and its transpose, one written", {3, 3},
          [](const at::Tensor& b) -> Tensors { return {b, b.t()}; },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[1] * a[0]};
          }),
      views_judged(
          "tensor and its transpose, the transpose written and both returned", {3, 3},
          [](const at::Tensor& b) -> Tensors { return {b, b.t()}; },
          [](Tensors& a) -> Tensors {
            a[1].mul_(2);
            return {a[0], a[1]};
          }),
      views_judged(
          "empty slices of one tensor, one written", {4},
          [](const at::Tensor& b) -> Tensors { return {b.slice(0, 1, 1), b.slice(0, 1, 3)}; },
          [](Tensors& a) -> Tensors {
            a[0].add_(1);
            a[1].mul_(2);
            return {a[1] + 1};
          }),
      views_judged(
          "one tensor twice and one that overlaps it, the first written", {6},
          [](const at::Tensor& b) -> Tensors {
            const at::Tensor x = b.slice(0, 0, 4);
            return {x, x, b.slice(0, 2, 6)};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[1] + a[2]};
          }),
      views_judged(
          "one tensor twice and its base, the base written", {6},
          [](const at::Tensor& b) -> Tensors {
            const at::Tensor x = b.slice(0, 0, 4);
            return {b, x, x};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[2].view({2, 2})};
          }),
      judged(
          "results of unbind, one written",
          views_of(
              {2, 4}, [](const at::Tensor& b) { return b.unbind(); }, true),
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[1] * 3};
          },
          raising("is a view and is being modified inplace")),
      judged("results of unbind without grad, one written",
             views_of(
                 {2, 4}, [](const at::Tensor& b) { return b.unbind(); }, false),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               return {a[1] * 3};
             }),
      judged(
          "overlapping integers",
          [] {
            at::Tensor b = torch::arange(6);
            return Inputs{{b.slice(0, 0, 4), b.slice(0, 2, 6)}, {}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            a[1].add_(1);
            return {a[0] * 3, a[1].view({2, 2})};
          }),
      judged(
          "written from an operand that it overlaps",
          [] {
            at::Tensor b = torch::randn({6});
            return Inputs{{b.slice(0, 0, 4), b.slice(0, 2, 6)}, {}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[1].add_(a[0]);
            return {};
          },
          raising("some elements of the input tensor and the written-to tensor refer to a single")),
      views_judged(
          "overlapping slices, both written in turn", {8},
          [](const at::Tensor& b) -> Tensors { return {b.slice(0, 0, 6), b.slice(0, 2, 8)}; },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            a[1].add_(1);
            a[0].mul_(3);
            return {a[0] + a[1]};
          }),
      views_judged(
          "interleaved elements, one written", {8},
          [](const at::Tensor& b) -> Tensors { return {b.slice(0, 0, 8, 2), b.slice(0, 1, 8, 2)}; },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0] + a[1]};
          }),
  };
}

std::vector<Case> ops() {
  return {
      judged_both("scatter_ and index_add_", {{4, 4}, {2, 4}},
                  [](Tensors& a) -> Tensors {
                    a[0].index_add_(0, torch::arange(2) + 1, a[1]);
                    a[0].scatter_(1, torch::zeros({4, 1}, torch::kLong), 2.0);
                    return {a[0] * 2};
                  }),
      judged_both("addmm_ and relu_", {{3, 3}, {3, 3}},
                  [](Tensors& a) -> Tensors {
                    a[0].addmm_(a[1], a[1]);
                    return {torch::relu_(a[0]) + 1};
                  }),
      judged_both("exp_ returned as a view: what is saved is the argument", {{4}},
                  [](Tensors& a) -> Tensors {
                    a[0].exp_();
                    return {a[0].view(-1), a[0] * 2};
                  }),
      judged_both("tanh_ of an intermediate that is returned", {{4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2;
                    t.tanh_();
                    return {t, t.view({2, 2})};
                  }),
      judged_both("swap of two arguments", {{4}, {4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0].clone();
                    a[0].copy_(a[1]);
                    a[1].copy_(t);
                    return {};
                  }),
      judged_both("argument added to from its own old value", {{4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor y = a[0] * 2;
                    a[0].add_(y);
                    return {y};
                  }),
      judged("in-place random numbers", plain({{8}, {8}}),
             [](Tensors& a) -> Tensors {
               a[0].normal_();
               a[1].uniform_().bernoulli_(0.5);
               return {a[0] + a[1]};
             }),
      judged("in-place dropout", non_leaves({{8}}),
             [](Tensors& a) -> Tensors {
               torch::dropout_(a[0], 0.5, true);
               return {a[0] * 2};
             }),
      judged(
          "embedding that renormalises its weight",
          [] {
            at::Tensor w = torch::randn({5, 3}) * 4;
            return Inputs{{w, torch::tensor({1, 3, 1})}};
          },
          [](Tensors& a) -> Tensors {
            at::embedding_renorm_(a[0], a[1], 1.0, 2.0);
            return {torch::embedding(a[0], a[1])};
          }),
      judged_both("foreach writes", {{4}, {4}},
                  [](Tensors& a) -> Tensors {
                    at::_foreach_add_(a, 1.0);
                    at::_foreach_mul_(a, 2.0);
                    return {a[0] + a[1]};
                  }),
      judged(
          "out= that grows its result",
          [] { return Inputs{{torch::randn({4}), torch::empty({0})}}; },
          [](Tensors& a) -> Tensors {
            torch::mul_out(a[1], a[0], a[0]);
            return {a[1]};
          }),
      judged(
          "write through the real part",
          [] {
            at::Tensor p = torch::randn({4}, torch::kComplexFloat).set_requires_grad(true);
            return Inputs{{p * 1.5}, {p}};
          },
          [](Tensors& a) -> Tensors {
            at::real(a[0]).mul_(2);
            return {a[0] * 3, at::imag(a[0])};
          }),
      judged(
          "real view of an intermediate beside it",
          [] {
            at::Tensor p = torch::randn({4}, torch::kComplexFloat).set_requires_grad(true);
            return Inputs{{p}, {p}};
          },
          [](Tensors& a) -> Tensors {
            at::Tensor t = a[0] * 2;
            return {torch::view_as_real(t), t, t.conj()};
          }),
      judged(
          "channels-last argument written",
          [] {
            at::Tensor p = leaf({2, 3, 4, 4});
            return Inputs{{(p * 1.5).contiguous(torch::MemoryFormat::ChannelsLast)}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0].relu(), a[0].permute({0, 2, 3, 1})};
          }),
      judged(
          "transposed argument written",
          [] {
            at::Tensor p = leaf({3, 4});
            return Inputs{{(p * 1.5).t()}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0].contiguous().view(-1)};
          }),
  };
}

std::vector<Case> geometry() {
  return {
      judged_both("view transposed in place and returned", {{3, 4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor v = a[0].view({4, 3});
                    v.t_();
                    return {v};
                  }),
      judged_both("view of an intermediate unsqueezed in place", {{3, 4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2, v = t.view({4, 3});
                    v.unsqueeze_(0);
                    return {v, t};
                  }),
      judged_both("argument transposed in place, then a row returned", {{3, 4}},
                  [](Tensors& a) -> Tensors {
                    a[0].t_();
                    return {a[0][0], a[0]};
                  }),
      judged_both("view before and after a transpose in place", {{3, 4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor before = a[0].view(-1);
                    a[0].t_();
                    return {before, a[0].unsqueeze(0)};
                  }),
      judged_both("as_strided of the input and of an intermediate", {{4, 4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2;
                    return {a[0].as_strided({2, 2}, {4, 1}, 1), t.as_strided({3}, {5}, 0), t};
                  }),
      judged(
          "set_ to an intermediate, view returned", plain({{4}, {6}}),
          [](Tensors& a) -> Tensors {
            at::Tensor t = a[1] * 2;
            a[0].set_(t);
            return {a[0].view({2, 3}), t};
          },
          refused("a result shares the memory that set_() gave")),
      judged("set_ to a view of an argument", plain({{4}, {6}}),
             [](Tensors& a) -> Tensors {
               a[0].set_(a[1].slice(0, 1, 4));
               a[0].add_(1);
               return {a[0] * 2};
             }),
      judged("written, then set_", plain({{4}, {4}}),
             [](Tensors& a) -> Tensors {
               at::Tensor v = a[0].view(-1);
               a[0].mul_(2);
               a[0].set_(a[1]);
               return {v * 3};
             }),
      judged_both("unsqueeze_ alone", {{3, 4}},
                  [](Tensors& a) -> Tensors {
                    a[0].unsqueeze_(1);
                    return {};
                  }),
      judged(
          "swapdims_ and write through a view taken before", non_leaves({{3, 4}}),
          [](Tensors& a) -> Tensors {
            at::Tensor v = a[0].select(0, 1);
            a[0].swapdims_(0, 1);
            v.mul_(3);
            return {a[0] * 2};
          },
          refused("a view is written whose base was reshaped in place")),
      judged("swapdims_ and write through a view taken before, without grad", plain({{3, 4}}),
             [](Tensors& a) -> Tensors {
               at::Tensor v = a[0].select(0, 1);
               a[0].swapdims_(0, 1);
               v.mul_(3);
               return {a[0] * 2};
             }),
  };
}

std::vector<Case> modes() {
  Settings no_grad, inference, transposed;
  no_grad.around = in_no_grad_mode;
  transposed.around = in_no_grad_mode;
  // Its history still speaks of the sizes before.
  transposed.backward_raises = "invalid gradient at index 0";
  inference.around = [](const std::function<void()>& body) {
    const c10::InferenceMode mode;
    body();
  };
  const Function program = [](Tensors& a) -> Tensors {
    a[0].mul_(2);
    at::Tensor t = a[0] * 3;
    return {a[0].view(-1), a[0], t, t.t()};
  };
  return {
      judged("called without grad mode: non-leaf", non_leaves({{3, 3}}), program, no_grad),
      judged("called without grad mode: leaf", leaves({{3, 3}}), program, no_grad),
      judged(
          "called without grad mode: transposed in place", non_leaves({{3, 4}}),
          [](Tensors& a) -> Tensors {
            a[0].t_();
            return {a[0] * 2};
          },
          transposed),
      judged("called in inference mode", plain({{3, 3}}), program, inference),
      judged("called in inference mode: non-leaf", non_leaves({{3, 3}}), program, inference),
      judged(
          "called in inference mode: views only", non_leaves({{3, 3}}),
          [](Tensors& a) -> Tensors { return {a[0].view(-1), a[0].t()}; }, inference),
      judged(
          "grad mode switched on inside", non_leaves({{4}}),
          [](Tensors& a) -> Tensors {
            const torch::AutoGradMode grad_mode(true);
            a[0].mul_(2);
            return {a[0] * 3};
          },
          no_grad),
      judged("data() returned", non_leaves({{4}}),
             [](Tensors& a) -> Tensors { return {a[0].data(), a[0].variable_data()}; }),
      judged(
          "detached beside the tensor itself",
          [] {
            at::Tensor p = leaf({4}), x = p * 1.5;
            return Inputs{{x, x.detach()}, {p}};
          },
          [](Tensors& a) -> Tensors { return {a[0] * a[1]}; }),
      judged("requires_grad_ inside, alias used", plain({{4}}),
             [](Tensors& a) -> Tensors {
               a[0].requires_grad_(true);
               at::Tensor v = a[0].view({2, 2});
               return {v, v * 3};
             }),
      judged("requires_grad_ inside, then written without grad mode", plain({{4}}),
             [](Tensors& a) -> Tensors {
               a[0].requires_grad_(true);
               {
                 const torch::NoGradGuard no_grad;
                 a[0].mul_(2);
               }
               return {a[0] * 3};
             }),
      judged("detached alias made a leaf, and its view", leaves({{4}}),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2, d = t.detach().requires_grad_();
               return {t, d, d.view({2, 2}), d * 3};
             }),
      judged("gradient inside, after a write", non_leaves({{4}}),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               at::Tensor y = (a[0] * a[0]).sum();
               at::Tensor g = torch::autograd::grad({y}, {a[0]}, {}, true, true)[0];
               return {g * 3, y};
             }),
      judged(
          "undefined argument and result",
          [] {
            at::Tensor p = leaf({4});
            return Inputs{{p * 1.5, at::Tensor()}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[1], a[0] * 3, at::Tensor()};
          }),
  };
}

/// A list of views of one tensor is written: docs/reference/differences.md, "Nodes".
void list_of_views_written(Session&) {
  const auto program = [](const at::Tensor& a, const at::Tensor& b) {
    at::_foreach_mul_({a, b}, 2.0);
    return a + b;
  };
  const auto compiled = tandem::compile(program);
  for (const bool here : {false, true}) {
    const at::Tensor x = leaf({4}), base = x * 0.5;
    const at::Tensor first = base.narrow(0, 0, 2), last = base.narrow(0, 2, 2);
    const at::Tensor sum = here ? compiled(first, last) : program(first, last);
    const auto gradient = [](const at::Tensor& of, const at::Tensor& in) {
      return torch::autograd::grad({of.sum()}, {in}, {}, true, false, /*allow_unused=*/true)[0];
    };
    EXPECT_EQ(gradient(first, base).defined(), here);
    EXPECT_TRUE(gradient(last, base).defined());
    EXPECT_TRUE(at::equal(gradient(first, x), torch::tensor({1.0F, 1.0F, 0.0F, 0.0F})));
    EXPECT_TRUE(at::equal(gradient(last, x), torch::tensor({0.0F, 0.0F, 1.0F, 1.0F})));
    EXPECT_TRUE(at::equal(gradient(sum, x), torch::ones({4})));
  }
}

}  // namespace

Category interplay() {
  Category category{"Interplay", {}};
  for (const auto& list : {shared_memory(), ops(), geometry(), modes()}) {
    category.cases.insert(category.cases.end(), list.begin(), list.end());
  }
  category.cases.push_back({"list of views of one tensor that is written", list_of_views_written});
  return category;
}

}  // namespace tandem::conformance
