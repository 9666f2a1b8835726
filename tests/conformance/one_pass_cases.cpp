#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

#include <memory>

/// Programs that need no second run to be understood: writes, views, overlaps, custom functions
/// and gradients inside, each read off one trace.
namespace tandem::conformance {
namespace {

namespace autograd = torch::autograd;

MakeInputs one_non_leaf() { return non_leaves({{4, 4}}); }
MakeInputs one_leaf() { return leaves({{4, 4}}); }
MakeInputs one_plain() { return plain({{4, 4}}); }

Settings rounding() {
  Settings settings;
  settings.sums_may_round = true;
  return settings;
}

Settings raising(std::string words) {
  Settings settings;
  settings.raises = std::move(words);
  return settings;
}

Settings raising_in_backward() {
  Settings settings;
  settings.backward_raises =
      "one of the variables needed for gradient computation has been modified by an inplace";
  return settings;
}

/// A tensor that is written, and a leaf that is read.
MakeInputs written_and_leaf(std::vector<int64_t> written, std::vector<int64_t> read) {
  return [=] {
    at::Tensor buffer = leaf(written, false), w = leaf(read);
    return Inputs{{buffer, w}, {w}};
  };
}

struct Twice : autograd::Function<Twice> {
  static at::Tensor forward(autograd::AutogradContext*, at::Tensor x) { return x * 2; }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0] * 2};
  }
};
struct Dirty : autograd::Function<Dirty> {
  static at::Tensor forward(autograd::AutogradContext* context, at::Tensor x) {
    x.mul_(5);
    context->mark_dirty({x});
    return x;
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0] * 5};
  }
};
struct ViewOf : autograd::Function<ViewOf> {
  static at::Tensor forward(autograd::AutogradContext*, at::Tensor x) { return x.view(-1); }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0].view({4, 4}) * 7};
  }
};

std::vector<Case> writes() {
  return {
      judged("write to a non-leaf", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               return {a[0] + 1};
             }),
      judged(
          "write to a view beside its base",
          [] {
            at::Tensor p = leaf({4, 4}), b = p * 1.5;
            return Inputs{{b[1], b}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2).sin_();
            return {a[0] + 1};
          }),
      judged(
          "write to a leaf", one_leaf(),
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0] + 1};
          },
          raising("a leaf Variable that requires grad")),
      judged("argument without grad gets a history", written_and_leaf({4, 4}, {4, 4}),
             [](Tensors& a) -> Tensors {
               a[0].mul_(a[1]);
               return {a[0].sum()};
             }),
      judged(
          "write to a view of a non-leaf whose base is no argument",
          [] {
            at::Tensor p = leaf({4, 4}), b = p * 1.5;
            return Inputs{{b[1]}, {p}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2).add_(1);
            return {a[0] + 1};
          }),
      judged(
          "write to a result of split",
          [] {
            at::Tensor p = leaf({4, 4}), b = p * 1.5;
            return Inputs{{b.split(2)[0]}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0] + 1};
          },
          raising("is a view and is being modified inplace")),
      judged(
          "write to a view of a leaf",
          [] {
            at::Tensor p = leaf({4, 4});
            return Inputs{{p.view(-1)}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            return {a[0] + 1};
          },
          raising("a view of a leaf Variable that requires grad")),
      judged(
          "write through a view",
          [] {
            at::Tensor p = leaf({4, 4}), y = leaf({16});
            return Inputs{{p * 1.5, y}, {p, y}};
          },
          [](Tensors& a) -> Tensors {
            at::Tensor v = a[0].view(-1);
            v.add_(a[1]);
            return {a[0].sum()};
          }),
      judged("transposed in place", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].t_();
               return {a[0] * 3};
             }),
      judged("written and transposed in place", non_leaves({{4, 3}}),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2).t_();
               return {a[0] * 3};
             }),
      judged("write to a leaf without grad mode", leaves({{4, 4}, {4, 4}}),
             [](Tensors& a) -> Tensors {
               {
                 const torch::NoGradGuard no_grad;
                 a[0].add_(1);
               }
               return {a[0] * a[1]};
             }),
      judged("write in inference mode", written_and_leaf({4, 4}, {4, 4}),
             [](Tensors& a) -> Tensors {
               {
                 const c10::InferenceMode mode;
                 a[0].add_(1);
               }
               return {a[0] * a[1]};
             }),
      judged("write through detach", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].detach().mul_(2);
               return {a[0]};
             }),
      judged("write through detach of a leaf, then used", one_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].detach().mul_(2);
               return {a[0] * a[0]};
             }),
      judged(
          "batch norm in training",
          [] {
            at::Tensor x = leaf({4, 3, 2, 2}), w = leaf({3}), b = leaf({3});
            return Inputs{{x, w, b, torch::zeros({3}), torch::ones({3})}, {x, w, b}};
          },
          [](Tensors& a) -> Tensors {
            return {torch::batch_norm(a[0], a[1], a[2], a[3], a[4], true, 0.1, 1e-5, false)};
          }),
      judged("written and returned as a view", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               return {a[0].view(-1)};
             }),
      judged(
          "view taken before the write", one_non_leaf(),
          [](Tensors& a) -> Tensors {
            at::Tensor v = a[0].t();
            a[0].mul_(2);
            at::Tensor w = v * v;
            return {v, w};
          },
          rounding()),
      judged(
          "saved, then overwritten", one_non_leaf(),
          [](Tensors& a) -> Tensors {
            at::Tensor y = a[0] * a[0];
            a[0].mul_(2);
            return {y};
          },
          raising_in_backward()),
      judged(
          "chain of writes whose result is saved", one_non_leaf(),
          [](Tensors& a) -> Tensors {
            a[0].sigmoid_().mul_(2);
            return {a[0] * 3, a[0]};
          },
          raising_in_backward()),
      judged(
          "slices assigned",
          [] {
            at::Tensor p = leaf({4, 4}), y = leaf({16});
            return Inputs{{p * 1.5, y}, {p, y}};
          },
          [](Tensors& a) -> Tensors {
            a[0].select(0, 1).copy_(a[1].slice(0, 0, 4));
            a[0].slice(1, 0, 2).mul_(a[0].slice(1, 2, 4).detach().clone());
            return {a[0] * 2};
          }),
      judged("write through data after use", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor y = a[0] * a[0];
               a[0].data().mul_(2);
               return {y};
             }),
      judged(
          "view made in no-grad mode, then written", one_non_leaf(),
          [](Tensors& a) -> Tensors {
            at::Tensor v;
            {
              const torch::NoGradGuard no_grad;
              v = a[0].view(-1);
            }
            v.mul_(2);
            return {a[0] * 2};
          },
          raising("A view was created in no_grad mode")),
      judged("set_ to another argument, then written", plain({{4}, {6}}),
             [](Tensors& a) -> Tensors {
               a[0].set_(a[1]);
               a[0].mul_(2);
               return {a[0] * 3};
             }),
      judged("no-grad write, then a write in grad mode", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               {
                 const torch::NoGradGuard no_grad;
                 a[0].add_(1);
               }
               a[0].mul_(2);
               return {a[0].t()};
             }),
      judged(
          "inference tensor written outside",
          [] {
            const c10::InferenceMode mode;
            return Inputs{{torch::randn({4, 4})}};
          },
          [](Tensors& a) -> Tensors {
            a[0].add_(1);
            return {a[0] * 2};
          },
          raising("Inplace update to inference tensor outside InferenceMode")),
      judged("growing resize_", plain({{4}}),
             [](Tensors& a) -> Tensors {
               a[0].resize_({6});
               a[0].fill_(2);
               return {a[0] * 2};
             }),
      judged("shrinking resize_", plain({{4}}),
             [](Tensors& a) -> Tensors {
               a[0].resize_({3});
               a[0].mul_(2);
               return {a[0] * 2};
             }),
      judged("transposed twice", one_plain(),
             [](Tensors& a) -> Tensors {
               a[0].t_();
               a[0].t_();
               return {a[0] * 2};
             }),
      judged(
          "writes through diagonal, narrow and transpose; unfold and expand returned",
          one_non_leaf(),
          [](Tensors& a) -> Tensors {
            at::Tensor d = a[0].diagonal();
            d.mul_(2);
            at::Tensor n = a[0].narrow(0, 1, 2);
            n.add_(1);
            a[0].unsqueeze(0).squeeze(0).transpose(0, 1).mul_(3);
            return {d, n, a[0].unfold(0, 2, 2), a[0].unsqueeze(0).expand({3, 4, 4})};
          },
          rounding()),
      judged("masked_fill_, index_put_, cat", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].masked_fill_(a[0] > 0, 1.5);
               at::Tensor t = torch::cat({a[0], a[0].t()});
               t.index_put_({torch::arange(2)}, a[0].slice(0, 0, 2) * 2);
               return {t, t.slice(0, 1, 3)};
             }),
      judged(
          "two arguments written, each from the other",
          [] {
            at::Tensor p = leaf({4}), q = leaf({4});
            return Inputs{{p * 1.5, q * 2.5}, {p, q}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(2);
            a[1].add_(a[0]);
            a[0].add_(a[1] * 0.5);
            a[1].mul_(3);
            a[1].add_(a[0]);
            return {a[0] * 2, a[1].exp()};
          },
          rounding()),
      judged("written argument, its view twice", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               a[0].mul_(2);
               at::Tensor v = a[0].view(-1);
               return {v, v, a[0], a[0].t().t()};
             }),
      judged("out= form", plain({{4}, {4}}),
             [](Tensors& a) -> Tensors {
               torch::mul_out(a[1], a[0], a[0]);
               return {a[1] + 1};
             }),
      judged("differentiable write into a buffer", written_and_leaf({4, 4}, {4}),
             [](Tensors& a) -> Tensors {
               a[0].select(0, 1).copy_(a[1] * 2);
               return {a[0].sum()};
             }),
      judged(
          "differentiable write into a buffer that is a view",
          [] {
            at::Tensor w = leaf({4}), b = leaf({2, 4, 4}, false);
            return Inputs{{b[1], w}, {w}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].select(0, 1).copy_(a[1] * 2);
            return {a[0].sum()};
          }),
      judged(
          "offset changed in place",
          [] {
            at::Tensor b = leaf({8}, false);
            return Inputs{{b.slice(0, 2, 6)}, {}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].as_strided_({2}, {1}, a[0].storage_offset() + 1);
            a[0].mul_(3);
            return {a[0] * 2};
          }),
      judged("requires_grad_ inside", one_plain(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 3;
               a[0].requires_grad_(true);
               return {a[0] * a[0] + t};
             }),
      judged("detach_ inside", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor y = a[0] * 2;
               a[0].detach_();
               return {y + a[0]};
             }),
  };
}

std::vector<Case> results() {
  return {
      judged("views of the input", one_leaf(),
             [](Tensors& a) -> Tensors { return {a[0].view(-1), a[0][0], a[0].detach()}; }),
      judged("views of an intermediate", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2;
               return {t.view(-1), t.t()};
             }),
      judged("intermediate, its view, its detach", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2;
               return {t, t.view(-1), t.detach()};
             }),
      judged("intermediate without grad and its views", one_plain(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2;
               return {t.view(-1), t.t()};
             }),
      judged("written through returned views", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2, v = t.view(-1), u = t.t();
               v.mul_(3);
               u.add_(1);
               return {v, u};
             }),
      judged("buffer filled through views", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = torch::zeros({4, 4});
               t.select(0, 0).copy_(a[0].select(0, 1) * 2);
               t.select(1, 2).add_(a[0].sum());
               return {t, t.view(-1)};
             }),
      judged("one view of an intermediate", one_leaf(),
             [](Tensors& a) -> Tensors { return {(a[0] * 2).view(-1)}; }),
      judged("detached alias made a leaf", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2, d = t.detach().requires_grad_();
               return {t, d, d * 3};
             }),
      judged("split of an intermediate", one_leaf(),
             [](Tensors& a) -> Tensors {
               Tensors s = (a[0] * 2).split(2);
               return {s[0], s[1]};
             }),
      judged("split of the input", one_leaf(),
             [](Tensors& a) -> Tensors {
               Tensors s = a[0].split(2);
               return {s[0], s[1]};
             }),
      judged("input and intermediate returned twice", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2;
               return {a[0], a[0], t, t};
             }),
      judged(
          "conj and real view",
          [] {
            at::Tensor p = torch::randn({3, 3}, torch::kComplexFloat).set_requires_grad(true);
            return Inputs{{p}, {p}};
          },
          [](Tensors& a) -> Tensors {
            return {a[0].conj(), torch::view_as_real(a[0]), a[0].conj() * 2};
          },
          rounding()),
      judged(
          "inference tensor read",
          [] {
            const c10::InferenceMode mode;
            return Inputs{{torch::randn({4, 4})}};
          },
          [](Tensors& a) -> Tensors { return {a[0] * 2, a[0].view(-1)}; }),
      judged(
          "chunk written through its base", one_leaf(),
          [](Tensors& a) -> Tensors {
            at::Tensor t = a[0] * 2;
            Tensors s = t.chunk(2);
            t.mul_(3);
            return {s[0] * 2, t};
          },
          raising("is a view and its base or another view of its base has been modified")),
      judged(
          "chunk written directly", one_leaf(),
          [](Tensors& a) -> Tensors {
            at::Tensor t = a[0] * 2;
            Tensors s = t.chunk(2);
            s[0].mul_(3);
            return {t};
          },
          raising("is a view and is being modified inplace")),
  };
}

std::vector<Case> overlaps() {
  return {
      judged(
          "same argument twice, written",
          [] {
            at::Tensor p = leaf({4, 4}), x = p * 1.5, w = leaf({4, 4});
            return Inputs{{x, x, w}, {p, w}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(a[2]);
            return {a[1] * 2};
          }),
      judged(
          "overlapping arguments, one written",
          [] {
            at::Tensor b = leaf({8}, false);
            return Inputs{{b.slice(0, 0, 4), b.slice(0, 2, 6)}, {}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].add_(1);
            return {a[1] * 2, a[1].view({2, 2})};
          }),
      judged(
          "overlapping views that need grad, one written",
          [] {
            at::Tensor p = leaf({8}), b = p * 1.5;
            return Inputs{{b.slice(0, 0, 4), b.slice(0, 2, 6)}, {p}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(a[0].detach() + 3);
            return {a[1] * 2, a[1].view({2, 2})};
          }),
      judged(
          "base and view, the view written",
          [] {
            at::Tensor p = leaf({4, 4}), b = p * 1.5;
            return Inputs{{b, b[1]}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[1].mul_(2).sin_();
            return {a[0] * 3, a[1]};
          }),
      judged(
          "base and view, nothing written",
          [] {
            at::Tensor p = leaf({4, 4}), b = p * 1.5;
            return Inputs{{b, b[1]}, {p}};
          },
          [](Tensors& a) -> Tensors { return {a[0] * a[1]}; }),
  };
}

std::vector<Case> functions_and_gradients() {
  return {
      judged("write to a custom function's result", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor y = Twice::apply(a[0]);
               y.mul_(3);
               return {y};
             }),
      judged("custom function that writes its input", one_non_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor y = Dirty::apply(a[0]);
               return {y * 2, a[0]};
             }),
      judged("custom function that returns a view", one_leaf(),
             [](Tensors& a) -> Tensors { return {ViewOf::apply(a[0])}; }),
      judged("gradient inside", leaves({{5, 1}, {1, 8}, {8, 1}}),
             [](Tensors& a) -> Tensors {
               at::Tensor u = torch::tanh(a[0].matmul(a[1])).matmul(a[2]);
               at::Tensor g = autograd::grad({u.sum()}, {a[0]}, {}, true, true)[0];
               return {((g - u) * (g - u)).mean(), u};
             }),
      judged(
          "gradient inside with respect to a non-leaf",
          [] {
            at::Tensor p = leaf({5, 1}), w = leaf({1, 8});
            return Inputs{{p * 2, w}, {p, w}};
          },
          [](Tensors& a) -> Tensors {
            at::Tensor u = torch::tanh(a[0].matmul(a[1])).sum();
            at::Tensor g = autograd::grad({u}, {a[0]}, {}, true, true)[0];
            return {(g * g).sum()};
          }),
      judged("hook on an intermediate", one_leaf(),
             [](Tensors& a) -> Tensors {
               at::Tensor t = a[0] * 2;
               t.register_hook([](at::Tensor g) { return g * 3; });
               return {t.sin()};
             }),
  };
}

/// Parameter and written buffer closed over.
Program closed_over_buffer() {
  auto w = std::make_shared<at::Tensor>(leaf({4, 4}));
  auto b = std::make_shared<at::Tensor>(torch::zeros({4}));
  return {[=] {
            at::Tensor p = leaf({4, 4});
            return Inputs{{p * 1.5}, {*w, p}, {*b}};
          },
          [=](Tensors& a) -> Tensors {
            at::Tensor y = a[0].clone().matmul(*w);
            {
              const torch::NoGradGuard no_grad;
              b->mul_(0.9).add_(y.mean(0));
            }
            a[0].mul_(2);
            return {y * *b, w->t(), *b};
          }};
}

Program closed_over_module() {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(),
                     nn::Linear(16, 5));
  return {[=] {
            Inputs inputs{{leaf({2, 3, 4, 4})}};
            inputs.leaves = inputs.arguments;
            for (at::Tensor& t : net->parameters()) inputs.leaves.push_back(t);
            inputs.watched = net->buffers();
            return inputs;
          },
          [=](Tensors& a) mutable -> Tensors {
            return {nn::functional::cross_entropy(net->forward(a[0]), torch::arange(2))};
          }};
}

/// A closed-over tensor shares memory with the argument: two slices of one base, four elements
/// each.
Program closed_over_overlap(bool written) {
  auto base = std::make_shared<at::Tensor>(leaf({8}, false));
  auto closed = std::make_shared<at::Tensor>(base->slice(0, 2, 6));
  return {[=] { return Inputs{{base->slice(0, 0, 4)}, {}, {*base, *closed}}; },
          [=](Tensors& a) -> Tensors {
            if (written) a[0].mul_(3);
            return {a[0] * *closed};
          }};
}

std::vector<Case> closures() {
  return {
      {"closure over a parameter and a written buffer",
       [](Session& session) { session.judge(closed_over_buffer); }},
      {"closure over a module with batch norm",
       [](Session& session) { session.judge(closed_over_module); }},
      {"closure overlaps an argument, nothing written",
       [](Session& session) { session.judge([] { return closed_over_overlap(false); }); }},
      {"closure overlaps an argument that is written",
       [](Session& session) {
         Settings settings;
         settings.traces = settings.epilogue_traces =
             2;  // the overlap is found late: the one retrace
         session.judge([] { return closed_over_overlap(true); }, settings);
       }},
  };
}

/// A view with a history, of a base that lies in order or not.
MakeInputs one_view(bool transposed) {
  return [=] {
    at::Tensor p = leaf({2, 3}), base = transposed ? p.t() * 1.5 : p * 1.5;
    return Inputs{{base.narrow(0, 0, 2)}, {p}};
  };
}

/// A write that makes the history of a view anew, without autograd.
void write_behind(const at::Tensor& x) { x.detach().mul_(0.5); }

/// Reads of a view belong to the history that it has at that time.
std::vector<Case> histories() {
  std::vector<Case> cases;
  for (const bool transposed : {false, true}) {
    const std::string of = transposed ? " of a transposed base" : " of a base in order";
    cases.push_back(judged("view" + of + " that is read before a write of its memory",
                           one_view(transposed), [](Tensors& a) -> Tensors {
                             const at::Tensor before = a[0].clone().pow(2);
                             write_behind(a[0]);
                             return {before};
                           }));
    cases.push_back(judged(
        "view" + of + " that is read before and after", one_view(transposed),
        [](Tensors& a) -> Tensors {
          const at::Tensor before = a[0].clone().pow(2);
          write_behind(a[0]);
          return {before, a[0].clone().pow(3)};
        },
        rounding()));
    cases.push_back(judged(
        "view" + of + " that is read before, between and after two writes", one_view(transposed),
        [](Tensors& a) -> Tensors {
          const at::Tensor before = a[0].clone().pow(2);
          write_behind(a[0]);
          const at::Tensor between = a[0].clone().pow(3);
          write_behind(a[0]);
          return {before, between, a[0].clone().exp()};
        },
        rounding()));
    cases.push_back(judged(
        "view" + of + " whose memory is written before it is rewritten", one_view(transposed),
        [](Tensors& a) -> Tensors {
          const at::Tensor before = a[0].clone().pow(2);
          write_behind(a[0]);
          const at::Tensor between = a[0].clone().pow(3);
          a[0].mul_(2);
          return {before, between, a[0].clone().exp()};
        },
        rounding()));
  }
  return cases;
}

}  // namespace

Category one_pass_programs() {
  Category category{"One-pass programs", {}};
  for (const auto& list :
       {writes(), results(), overlaps(), functions_and_gradients(), closures(), histories()}) {
    category.cases.insert(category.cases.end(), list.begin(), list.end());
  }
  return category;
}

}  // namespace tandem::conformance
