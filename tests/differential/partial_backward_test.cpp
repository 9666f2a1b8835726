/// Backwards from some of the results of a call: formulas that are not linear in their gradients,
/// or that look at which of them are there.
#include "support/error_text.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tandem::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;
using Program = std::function<Tensors(Tensors)>;

enum class Order { First, Second };

/// Every input, or one of them.
constexpr size_t kAllInputs = static_cast<size_t>(-1);

/// What a backward from the chosen results gives, defined or not; or what it raises.
struct Outcome {
  Tensors gradients;
  std::string error;
};

struct Choice {
  size_t results = 0;  // a bit for each
  size_t input = kAllInputs;
  Order order = Order::First;
};

Outcome differentiate(const Program& program, const Tensors& inputs, const Choice& choice) {
  const auto [chosen, input, order] = choice;
  Outcome outcome;
  const Tensors results = program(inputs);
  Tensors roots, tangents;
  for (size_t i = 0; i < results.size(); ++i) {
    if ((chosen >> i & 1) == 0) continue;
    roots.push_back(results[i]);
    tangents.push_back(torch::linspace(0.5 + static_cast<double>(i), 1.5, results[i].numel())
                           .reshape(results[i].sizes())
                           .requires_grad_(order == Order::Second));
  }
  Tensors wanted = input == kAllInputs ? inputs : Tensors{inputs[input]};
  try {
    outcome.gradients = torch::autograd::grad(roots, wanted, tangents, /*retain_graph=*/true,
                                              order == Order::Second, /*allow_unused=*/true);
    if (order == Order::First) return outcome;
    at::Tensor loss;
    for (const at::Tensor& gradient : outcome.gradients) {
      if (!gradient.defined() || !gradient.requires_grad()) continue;
      loss = loss.defined() ? loss + gradient.sin().sum() : gradient.sin().sum();
    }
    if (!loss.defined()) return outcome;
    wanted = inputs;
    wanted.insert(wanted.end(), tangents.begin(), tangents.end());
    for (const at::Tensor& gradient : torch::autograd::grad({loss}, wanted, {}, false, false, true))
      outcome.gradients.push_back(gradient);
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  }
  return outcome;
}

/// Of NaNs, which the order of operands decides.
at::Tensor without_signs(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.isnan().any().item<bool>()) return tensor;
  return torch::where(tensor.isnan(), std::numeric_limits<double>::quiet_NaN(), tensor);
}

std::vector<Choice> choices(size_t results, size_t inputs) {
  std::vector<Choice> all;
  for (const Order order : {Order::First, Order::Second}) {
    for (size_t chosen = 1; chosen < size_t{1} << results; ++chosen) {
      all.push_back({chosen, kAllInputs, order});
      for (size_t input = 0; input < inputs && inputs > 1; ++input)
        all.push_back({chosen, input, order});
    }
  }
  return all;
}

/// From each choice of results, for all inputs and for each by itself, in both orders.
void expect_partial_like_eager(const std::function<Tensors()>& make, const Program& program) {
  torch::manual_seed(1);
  const size_t results = program(make()).size();
  const auto compiled = tandem::compile<Tensors(Tensors)>(program);
  for (const Choice& choice : choices(results, make().size())) {
    SCOPED_TRACE("results " + std::to_string(choice.results) +
                 (choice.input == kAllInputs ? "" : ", input " + std::to_string(choice.input)) +
                 (choice.order == Order::First ? "" : ", second order"));
    WideRun wide_run;
    const auto run = [&](const Program& call) {
      torch::manual_seed(1);
      const Tensors inputs = make();
      return differentiate(call, inputs, choice);
    };
    const Outcome expected = [&] {
      const WideRun::Scope scope(wide_run);
      return run(program);
    }();
    const Outcome found = run(compiled);
    EXPECT_EQ(expected.error.substr(0, 60), found.error.substr(0, 60));
    ASSERT_EQ(expected.gradients.size(), found.gradients.size());
    for (size_t i = 0; i < found.gradients.size(); ++i) {
      const at::Tensor &eager = expected.gradients[i], &ours = found.gradients[i];
      ASSERT_EQ(eager.defined(), ours.defined()) << i;
      EXPECT_TRUE(same_bits(without_signs(eager), without_signs(ours))) << i << "\n"
                                                                        << eager << "\n"
                                                                        << ours;
    }
  }
}

std::function<Tensors()> leaves(size_t count) {
  return [count] {
    Tensors made;
    for (size_t i = 0; i < count; ++i)
      made.push_back(torch::rand({2, 3}).add(0.25).requires_grad_(true));
    return made;
  };
}

/// Two results whose backward multiplies, divides and compares the gradients.
template <class Formula>
struct Mixes : torch::autograd::Function<Mixes<Formula>> {
  static variable_list forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    context->save_for_backward({x, y});
    return {x.sin(), x * y};
  }
  static variable_list backward(AutogradContext* context, variable_list g) {
    const variable_list saved = context->get_saved_variables();
    return Formula::gradients(g[0], g[1], saved[0], saved[1]);
  }
};

struct TimesOnePlus {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor& y) {
    return {g0 * (1 + g1) * x, g1 * (2 - g0) * y};
  }
};

struct DividedByTwoPlus {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor& y) {
    return {g0 / (g1 + 2) + x, g1 / (g0 - 3) * y};
  }
};

struct OfOneGradientOnly {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor& y) {
    return {g0.exp() * x, (g1 * 3).cos() * y};
  }
};

/// Takes out of one gradient what works against the other.
struct Surgery {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor&,
                                 const at::Tensor&) {
    const at::Tensor a = g0 - 1, product = (a * g1).sum();
    const at::Tensor shared = product / (g1 * g1).sum().clamp_min(1e-6);
    return {torch::where(product < 0, a - shared * g1, a), g1 + torch::sign(g0)};
  }
};

struct Constants {
  static variable_list gradients(const at::Tensor&, const at::Tensor&, const at::Tensor& x,
                                 const at::Tensor& y) {
    return {x * 2, torch::ones_like(y)};
  }
};

template <class Formula>
Tensors mixed(Tensors in) {
  const variable_list made = Mixes<Formula>::apply(in[0], in[1]);
  return {made[0], made[1]};
}

/// The custom function in the middle, so that its gradients and what it gives meet others.
template <class Formula>
Tensors mixed_inside(Tensors in) {
  const at::Tensor x = in[0].exp() * in[2];
  const variable_list made = Mixes<Formula>::apply(x, in[1].cos());
  return {made[0] * in[1], (made[1] * x).sin(), in[2] * 3};
}

template <class Formula>
void expect_mixed_like_eager() {
  expect_partial_like_eager(leaves(2), mixed<Formula>);
  expect_partial_like_eager(leaves(3), mixed_inside<Formula>);
}

TEST(PartialBackward, ProductOfGradients) { expect_mixed_like_eager<TimesOnePlus>(); }
TEST(PartialBackward, QuotientOfGradients) { expect_mixed_like_eager<DividedByTwoPlus>(); }
TEST(PartialBackward, FunctionsOfOneGradient) { expect_mixed_like_eager<OfOneGradientOnly>(); }
TEST(PartialBackward, GradientSurgery) { expect_mixed_like_eager<Surgery>(); }
TEST(PartialBackward, GradientsThatDependOnNone) { expect_mixed_like_eager<Constants>(); }

TEST(PartialBackward, CustomFunctionsOnTheWayToEachOther) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    const variable_list first = Mixes<TimesOnePlus>::apply(in[0], in[1]);
    const variable_list second = Mixes<DividedByTwoPlus>::apply(first[0].exp(), in[1]);
    return {second[0], second[1] + first[1], first[1] * in[0]};
  });
}

TEST(PartialBackward, OneResultInTwoResultsOfTheCall) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    const variable_list made = Mixes<OfOneGradientOnly>::apply(in[0], in[1]);
    return {made[0].sin(), made[0] * made[1], in[0] + in[1]};
  });
}

/// One result whose formula is not linear.
struct Shifts : torch::autograd::Function<Shifts> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * g[0] + 1}; }
};

/// A custom function gives no gradient for one of its inputs: the formula behind runs on zeros.
struct PassesOne : torch::autograd::Function<PassesOne> {
  static at::Tensor forward(AutogradContext*, at::Tensor x, at::Tensor y) { return x + y; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0], at::Tensor()}; }
};

TEST(PartialBackward, AFormulaThatTheEngineReachesWithoutAGradient) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    const at::Tensor shifted = Shifts::apply(in[1]);
    return {PassesOne::apply(in[0], shifted), shifted * 3, in[0] * in[1]};
  });
}

// A documented difference: the call's node cannot tell a result that is not in the loss from one
// whose reader gives no gradient back.
TEST(PartialBackward, AReaderOutsideThatGivesNoGradientBack) {
  const Program program = [](Tensors in) -> Tensors { return {in[0] * 2, Shifts::apply(in[1])}; };
  const auto gradient = [](const Program& call) {
    const Tensors in = {torch::ones({2}).requires_grad_(), torch::ones({2}).requires_grad_()};
    const Tensors results = call(in);
    const at::Tensor loss = PassesOne::apply(results[0], results[1]).sum();
    return torch::autograd::grad({loss}, in, {}, {}, false, /*allow_unused=*/true)[1];
  };
  const at::Tensor eager = gradient(program);
  ASSERT_TRUE(eager.defined());
  EXPECT_TRUE(at::equal(eager, torch::ones({2})));  // 0 * 0 + 1
  EXPECT_FALSE(gradient(tandem::compile<Tensors(Tensors)>(program)).defined());
}

TEST(PartialBackward, NotReachedAtAll) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    return {Shifts::apply(in[0]) * in[1], Shifts::apply(in[1]).exp(), in[0].sin()};
  });
}

// A call has one autograd node for its results and one for each argument that it rewrites; eager
// runs the formula once, on the gradients of both.
TEST(PartialBackward, AFormulaForAResultAndARewrittenArgumentIsRefusedUnlessItIsLinear) {
  const auto refused = [](const Program& program) {
    const auto compiled = tandem::compile<Tensors(Tensors)>(program);
    const Tensors roots = leaves(2)();
    const at::Tensor written = roots[1] * 2, before = written.detach().clone();
    const std::string text = error_text<UnsupportedError>([&] { compiled({roots[0], written}); });
    const bool found = text.find(
                           "is not linear, and both a result and an argument that the "
                           "function rewrites lead to it") != std::string::npos;
    EXPECT_EQ(at::equal(before, written.detach()), found) << text;
    return found;
  };
  EXPECT_TRUE(refused([](Tensors in) -> Tensors {
    const variable_list made = Mixes<TimesOnePlus>::apply(in[0], in[0] * 2);
    in[1].add_(made[0]);
    return {made[1].sin()};
  }));
  EXPECT_TRUE(refused([](Tensors in) -> Tensors {
    const at::Tensor shifted = Shifts::apply(in[0]);
    in[1].add_(shifted);
    return {shifted * 3};
  }));
  EXPECT_TRUE(refused([](Tensors in) -> Tensors {
    const at::Tensor h = in[0].exp();
    h.register_hook([](const at::Tensor& gradient) { return gradient.clamp(-1, 1); });
    in[1].add_(h);
    return {h * 3};
  }));
  EXPECT_FALSE(refused([](Tensors in) -> Tensors {
    const at::Tensor h = in[0].exp();
    h.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    in[1].add_(h);
    return {h * 3};
  }));
}

/// Sees which gradients are there.
template <class Formula>
struct Sees : torch::autograd::Function<Sees<Formula>> {
  static variable_list forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    context->set_materialize_grads(false);
    context->save_for_backward({x, y});
    return {x.sin(), x * y};
  }
  static variable_list backward(AutogradContext* context, variable_list g) {
    const variable_list saved = context->get_saved_variables();
    return Formula::gradients(g[0], g[1], saved[0], saved[1]);
  }
};

struct BranchPerGradient {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor& y) {
    at::Tensor dx = x * 0.5;
    if (g0.defined()) dx = dx + g0 * 3;
    dx = g1.defined() ? dx + g1.exp() : dx * 7;
    return {dx, g1.defined() ? g1 * y : g0.cos()};
  }
};

struct GradientPerGradient {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor& y) {
    return {g0.defined() ? g0 * x : at::Tensor(), g1.defined() ? (g1 + 1) * y : at::Tensor()};
  }
};

struct RaisesWithoutTheSecond {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor&) {
    TORCH_CHECK(g1.defined(), "the second gradient is missing");
    return {g0.defined() ? g0 * x : x, g1 * 2};
  }
};

struct OtherStrides {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor& y) {
    if (!g0.defined()) return {(g1.t().contiguous() * x.t()).t(), y};
    return {g0 * x, g1.defined() ? g1 * y : (g0 * y).t().contiguous().t()};
  }
};

struct NeedsBoth {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor&,
                                 const at::Tensor&) {
    if (!g0.defined() || !g1.defined()) return {at::Tensor(), at::Tensor()};
    return {g0 * g1, g0};
  }
};

template <class Formula>
Tensors seen(Tensors in) {
  const at::Tensor x = in[0].exp();
  const variable_list made = Sees<Formula>::apply(x, in[1] * 2);
  return {made[0] * in[2], made[1].sin(), x * in[2]};
}

TEST(PartialBackward, ABranchPerGradientThatIsThere) {
  expect_partial_like_eager(leaves(3), seen<BranchPerGradient>);
}
TEST(PartialBackward, AGradientPerGradientThatIsThere) {
  expect_partial_like_eager(leaves(3), seen<GradientPerGradient>);
}
TEST(PartialBackward, RaisesWhereTheFormulaDoes) {
  expect_partial_like_eager(leaves(3), seen<RaisesWithoutTheSecond>);
}
TEST(PartialBackward, BranchesWithOtherStrides) {
  expect_partial_like_eager(leaves(3), seen<OtherStrides>);
}

TEST(PartialBackward, AGradientThatNeedsSeveralIsRefused) {
  const auto compiled = tandem::compile<Tensors(Tensors)>(seen<NeedsBoth>);
  const Tensors inputs = leaves(3)();
  const std::string text = error_text<UnsupportedError>([&] { compiled(inputs); });
  EXPECT_NE(text.find("joint: the backward of"), std::string::npos) << text;
  EXPECT_NE(text.find("sees which of its gradients are defined, has too many branches, or gives a "
                      "gradient only if several of its own are defined"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("remedy: leave set_materialize_grads on, so that it gets zeros"),
            std::string::npos)
      << text;
}

/// Draws in its backward, another number of times in each branch.
struct DrawsPerGradient {
  static variable_list gradients(const at::Tensor& g0, const at::Tensor& g1, const at::Tensor& x,
                                 const at::Tensor&) {
    return {g0.defined() ? g0 * torch::rand_like(x) : x, g1};
  }
};

TEST(PartialBackward, ABranchThatDrawsIsRefused) {
  const auto compiled = tandem::compile<Tensors(Tensors)>(seen<DrawsPerGradient>);
  const Tensors inputs = leaves(3)();
  const std::string text = error_text<UnsupportedError>([&] { compiled(inputs); });
  EXPECT_NE(text.find("which sees which of its gradients are defined, draws random numbers, has an "
                      "effect or writes an input"),
            std::string::npos)
      << text;
}

// The engine calls a tensor's hooks as soon as it gets to its node.
TEST(PartialBackward, AHookThatRaisesForAMissingGradient) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    const std::vector<at::Tensor> parts = in[0].exp().split(1);
    parts[0].register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    return {parts[0] * in[1], parts[1].sin(), in[1] * 2};
  });
}

TEST(PartialBackward, AHookMayNotMakeAMissingGradient) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    const std::vector<at::Tensor> parts = in[0].exp().split(1);
    const at::Tensor one = in[1][0].detach();
    parts[0].register_hook([one](const at::Tensor& gradient) {
      return gradient.defined() ? gradient * 2 : one.reshape({1, 3});
    });
    return {parts[0] * in[1], parts[1].sin(), in[1] * 2};
  });
}

TEST(PartialBackward, AHookOnAResultOfACustomFunction) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    const variable_list made = Mixes<TimesOnePlus>::apply(in[0], in[1]);
    made[1].register_hook(
        [](const at::Tensor& gradient) { return gradient.defined() ? gradient * 2 : gradient; });
    return {made[0].sin(), made[1].sin(), in[0] + in[1]};
  });
}

// libtorch's formulas have branches, too: 0 / 0 where eigenvalues are equal and vectors are in the
// loss.
TEST(PartialBackward, EigenvaluesOfAMatrixWithEqualOnes) {
  const auto make = [] { return Tensors{torch::eye(3).requires_grad_(true)}; };
  expect_partial_like_eager(make, [](Tensors in) -> Tensors {
    const auto [values, vectors] = torch::linalg_eigh(in[0] * 2);
    return {values, vectors.abs()};
  });
}

TEST(PartialBackward, SingularValuesOfAMatrixWithEqualOnes) {
  const auto make = [] { return Tensors{torch::eye(3).requires_grad_(true)}; };
  expect_partial_like_eager(make, [](Tensors in) -> Tensors {
    const auto [u, s, v] = torch::linalg_svd(in[0] * 2, false);
    return {s, u.abs(), v.abs()};
  });
}

TEST(PartialBackward, MeanAndDeviationOfEqualNumbers) {
  const auto make = [] { return Tensors{torch::ones({2, 3}).requires_grad_(true)}; };
  expect_partial_like_eager(make, [](Tensors in) -> Tensors {
    const auto [deviation, mean] = torch::std_mean(in[0] * 2, /*dim=*/1);
    return {mean, deviation};
  });
}

// What the backward of a draw gives looks at no gradient.
TEST(PartialBackward, FormulasThatIgnoreTheirGradient) {
  expect_partial_like_eager(leaves(2), [](Tensors in) -> Tensors {
    torch::manual_seed(3);
    return {at::normal(in[0].exp(), 1.0), in[0] * in[1], in[1].cos()};
  });
}

}  // namespace
}  // namespace tandem::test
