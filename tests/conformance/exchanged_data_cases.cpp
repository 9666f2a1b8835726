#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "fuzz/custom_functions.h"
#include "support/same_bits.h"

#include <gtest/gtest.h>

/// set_data() between a call and its backward. What eager has saved of the tensor itself it reads
/// as it is by then; what it has saved of views, and of whatever was computed, stays as it was.
namespace tandem::conformance {
namespace {

using fuzz::Recomputes;
using fuzz::Scales;

using OfWeight = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)>;

Handle compile_whole(const Function& function, const Options& options) {
  return handle_of(compile_boxed([function](Tensors list) { return function(list); }, options),
                   [](const auto& compiled, Tensors& list) { return compiled(list); });
}

/// `traces`: runs of the function, those for gradients with a graph and of both data included, for
/// both leaves and for one.
Settings with_new_data(const std::function<at::Tensor(const Inputs&)>& which, int64_t traces) {
  Settings settings;
  settings.second_order = traces > 1;
  settings.traces = settings.epilogue_traces = traces;
  settings.after_call = [which](const Inputs& inputs) {
    at::Tensor tensor = which(inputs);
    torch::manual_seed(31);
    tensor.set_data(torch::randn(tensor.sizes()));
  };
  return settings;
}

/// The second of two leaves, as an argument and closed over, gets other data.
Case exchanged(std::string name, int64_t traces, const OfWeight& function) {
  return {std::move(name), [traces, function](Session& session) {
            for (const bool closes_over : {false, true}) {
              session.judge(
                  [=] {
                    const at::Tensor w = leaf({3, 3});
                    Program program;
                    program.inputs = [=] {
                      Inputs inputs{{leaf({3, 3})}};
                      if (!closes_over) inputs.arguments.push_back(leaf({3, 3}));
                      inputs.leaves = inputs.arguments;
                      if (closes_over) inputs.leaves.push_back(w);
                      return inputs;
                    };
                    program.function = [=](Tensors& a) -> Tensors {
                      return {function(a[0], closes_over ? w : a[1])};
                    };
                    // As a whole: graphs that are lowered one by one do not know the function.
                    program.compile = [whole = program.function](const Options& options) {
                      return compile_whole(whole, options);
                    };
                    return program;
                  },
                  with_new_data([](const Inputs& inputs) { return inputs.leaves.back(); }, traces));
            }
          }};
}

Case unless_decomposed(Case one) {
  const auto body = one.body;
  one.body = [body](Session& session) {
    if (!test::backend_rounds()) body(session);
  };
  return one;
}

/// One half of a tensor is written, the other multiplied by what `w` holds and what it held.
Tensors of_halves(const Tensors& a) {
  const at::AutoGradMode grad_mode(true);
  const at::Tensor transposed = a[2].t();
  a[0].mul_(2);
  return {a[1] * transposed * a[2], a[0] * a[2]};
}

/// Of both results, in what the halves are made of, after `w` got other data.
at::Tensor gradient_of_halves(const std::function<Tensors(const Tensors&)>& f, bool with_grad) {
  torch::manual_seed(30);
  const at::Tensor of = leaf({4, 2}), w = leaf({2, 2}), base = of * 1.5;
  const Tensors arguments{base.slice(0, 0, 2), base.slice(0, 2, 4), w};
  Tensors results;
  {
    const at::AutoGradMode mode(with_grad);
    results = f(arguments);
  }
  w.set_data(torch::randn({2, 2}));
  return torch::autograd::grad({results[0].sum() + results[1].sum()}, {of})[0];
}

at::Tensor written(const at::Tensor& w, double by) {
  const torch::NoGradGuard no_grad;
  w.mul_(by);
  return w;
}

}  // namespace

Category exchanged_data() {
  return {
      "set_data() between call and backward",
      {
          exchanged("read itself", 2,
                    [](const at::Tensor& x, const at::Tensor& w) { return x * w; }),
          exchanged("read through a view", 2,
                    [](const at::Tensor& x, const at::Tensor& w) { return x.mm(w.t()).tanh(); }),
          exchanged(
              "read in both ways", 4,
              [](const at::Tensor& x, const at::Tensor& w) { return x * w + (x * w.t()).exp(); }),
          exchanged("only computed with", 2,
                    [](const at::Tensor& x, const at::Tensor& w) { return (x + w).sin(); }),
          exchanged("a formula computes what the forward has computed", 4,
                    [](const at::Tensor& x, const at::Tensor& w) {
                      return x.sin() + Recomputes::apply(w);
                    }),
          exchanged("a custom function behind the formulas", 2,
                    [](const at::Tensor& x, const at::Tensor& w) {
                      return at::silu(Scales::apply(w, 2.0)) * x;
                    }),
          exchanged("a formula that compares it with what was computed of it", 4,
                    [](const at::Tensor& x, const at::Tensor& w) {
                      return x.minimum(w) + (w.abs() + 1).digamma();
                    }),
          exchanged("a formula whose mask is computed with the forward", 4,
                    [](const at::Tensor& x, const at::Tensor& w) { return w.fmax(x * w); }),
          exchanged("draws", 4,
                    [](const at::Tensor& x, const at::Tensor& w) {
                      return (x * w).sigmoid() * at::rand_like(x) * w.t();
                    }),
          // A backend that decomposes the formula has nothing to tell that it reads the tensor
          // itself: the backward would be traced again, and asks for a copy.
          unless_decomposed(exchanged("written by the call", 1,
                                      [](const at::Tensor& x, const at::Tensor& w) {
                                        return at::hardshrink(written(w, 1.5), 0.25) + x;
                                      })),
          exchanged("written by the call, and read through an alias", 1,
                    [](const at::Tensor& x, const at::Tensor& w) {
                      return x * written(w, 1.5).detach();
                    }),
          {"the smallest of all elements, when none is equal to it any more",
           [](Session&) {
             const at::Tensor x = leaf({3});
             const auto f = compile([](const at::Tensor& a) { return a.min(); });
             const at::Tensor y = f(x), eager = x.min();
             x.set_data(torch::full({3}, 7.));
             EXPECT_TRUE(torch::autograd::grad({eager}, {x})[0].eq(0).all().item<bool>());
             EXPECT_TRUE(torch::autograd::grad({y}, {x})[0].eq(0).all().item<bool>());
           }},
          // The backward traces the function without grad mode, and must find what belongs
          // together.
          {"read in both ways by a function that writes one of two views",
           [](Session&) {
             for (const bool with_grad : {true, false}) {
               const auto f = compile_boxed([](Tensors a) { return of_halves(a); });
               // The first call has kept no copy of what it writes.
               EXPECT_THROW(gradient_of_halves(f, with_grad), UserError);
               EXPECT_TRUE(test::same_bits(gradient_of_halves(of_halves, with_grad),
                                           gradient_of_halves(f, with_grad)));
             }
           }},
          judged(
              "switched off by the call", leaves({{3}, {3}}),
              [](Tensors& a) -> Tensors {
                const at::Tensor y = a[0] * a[1];
                a[0].requires_grad_(false);
                return {y};
              },
              with_new_data([](const Inputs& inputs) { return inputs.leaves[1]; }, 1)),
      }};
}

}  // namespace tandem::conformance
