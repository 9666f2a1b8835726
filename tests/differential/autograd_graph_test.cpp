/// The autograd graph that a call leaves behind: what it looks like from outside, how it is walked,
/// written to and torn down.
#include "support/allocated_bytes.h"
#include "support/twins.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <set>

namespace tandem::test {
namespace {

using at::Tensor;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

TEST(AutogradGraph, OneNodeWhoseEdgesLeadToTheInputs) {
  torch::nn::Linear net(4, 3);
  auto f = tandem::compile(net, [net](const Tensor& x, const Tensor& w) mutable {
    return std::pair{(net(x) * w).tanh(), net(x).sum()};
  });
  const Tensor root = leaf({2, 4}), w = leaf({2, 3});
  const Tensor x = root * 2;
  const auto [y, z] = f(x, w);

  EXPECT_EQ(y.grad_fn()->name(), "TandemBackward");
  EXPECT_EQ(y.grad_fn(), z.grad_fn());
  EXPECT_EQ(y.output_nr(), 0);
  EXPECT_EQ(z.output_nr(), 1);
  EXPECT_EQ(y.grad_fn()->num_inputs(), 2u);
  std::set<const torch::autograd::Node*> reached;
  for (const auto& edge : y.grad_fn()->next_edges()) reached.insert(edge.function.get());
  EXPECT_EQ(reached, (std::set<const torch::autograd::Node*>{
                         x.grad_fn().get(), torch::autograd::impl::grad_accumulator(w).get(),
                         torch::autograd::impl::grad_accumulator(net->weight).get(),
                         torch::autograd::impl::grad_accumulator(net->bias).get()}));
}

// Programs that draw or search the graph walk next_edges() and see every leaf below.
TEST(AutogradGraph, WalkFindsEveryLeaf) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 3);
    auto f = twin.compile(net, [net](const Tensor& x) mutable { return net(x).tanh(); });
    const Tensor root = leaf({2, 4});
    const Tensor y = f(f(root * 2).matmul(torch::ones({3, 4}))).sum();
    std::set<torch::autograd::Node*> seen;
    std::vector<torch::autograd::Node*> open{y.grad_fn().get()};
    std::set<const c10::TensorImpl*> leaves;
    while (!open.empty()) {
      torch::autograd::Node* node = open.back();
      open.pop_back();
      if (!seen.insert(node).second) continue;
      if (auto* accumulate = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
        leaves.insert(accumulate->variable.unsafeGetTensorImpl());
      }
      for (const auto& edge : node->next_edges()) {
        if (edge.is_valid()) open.push_back(edge.function.get());
      }
    }
    for (const Tensor& t : {root, net->weight, net->bias}) {
      twin.record("found", leaves.contains(t.unsafeGetTensorImpl()));
    }
    twin.record("leaves", static_cast<int64_t>(leaves.size()));
  });
}

TEST(AutogradGraph, RequiresGradOfResultsIsSwitchedAsInEager) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return std::pair{x.exp(), x.detach() * 2}; });
    auto [y, z] = f(leaf({4}));
    Tensor history = y, plain = z;
    twin.record_error("off, with history", [&] { history.requires_grad_(false); });
    plain.requires_grad_(true);
    (plain * 3).sum().backward();
    twin.record("gradient of the plain result", plain.grad());
    history.detach_();
    twin.record("requires_grad after detach_", history.requires_grad());
    twin.record("leaf after detach_", history.is_leaf());
  });
}

TEST(AutogradGraph, ResultsWrittenInPlaceAfterwards) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return std::pair{x * 2, (x * x).sum(0)}; });
    const Tensor x = leaf({3, 3});
    auto [y, z] = f(x);
    Tensor a = y, b = z;
    a.add_(1).mul_(b.clone());
    a[0].zero_();
    b.sub_(a.sum(0).detach());
    twin.record("a", a);
    twin.record("b", b);
    (a.sum() + b.sum()).backward();
    twin.record("gradient", x.grad());
  });
}

TEST(AutogradGraph, ResultUsedInPlaceByTheNextCall) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.sin(); });
    const Tensor x = leaf({4});
    Tensor y = f(x);
    y.mul_(2);
    Tensor z = f(y);
    z.add_(y.detach());
    z.sum().backward();
    twin.record("gradient", x.grad());
  });
}

// Deeper than any stack could take if nodes were freed one inside the other.
// libtorch makes the grad_fn of a view anew when its memory was written; a tensor of its own keeps
// what it has. So a call must know which of the two it was given.
TEST(AutogradGraph, WrittenArgumentThatIsAViewOrNone) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) {
      {
        const torch::NoGradGuard no_grad;
        x.mul_(2);
      }
      return x + 1;
    });
    const Tensor p = leaf({3});
    for (const bool is_view : {false, true, false}) {
      const Tensor made = p * 2, x = is_view ? made.narrow(0, 0, 3) : made;
      const Tensor y = f(x);
      const auto gradients = torch::autograd::grad({y.sum()}, {x}, {}, true, false, true);
      twin.record("in the argument", std::string(gradients[0].defined() ? "defined" : "none"));
      twin.record("in the leaf", torch::autograd::grad({y.sum()}, {p})[0]);
    }
  });
}

TEST(AutogradGraph, LongChainOfCallsIsFreedAndDifferentiated) {
  torch::nn::Linear net(2, 2);
  auto with_parameters = tandem::compile(net, [net](const Tensor& x) mutable {
    return torch::tanh(net(x) * x);  // saves its argument
  });
  auto without = tandem::compile([](const Tensor& x) { return x * 1.0001; });
  const Tensor x = leaf({1, 2});
  for (const auto& f : {with_parameters, without}) {
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i) y = f(y);
    y.reset();
    y = x;
    for (int i = 0; i < 3'000; ++i) y = f(y);
    y.sum().backward();
    EXPECT_TRUE(x.grad().defined());
  }
}

TEST(AutogradGraph, LongChainHasEagersGradient) {
  expect_twins_agree([](Twin& twin) {
    auto f = twin.compile([](const Tensor& x) { return x.sin() + x * 0.5; });
    const Tensor x = leaf({4});
    Tensor y = x;
    for (int i = 0; i < 300; ++i) y = f(y);
    y.sum().backward();
    twin.record("gradient", x.grad());
  });
}

// Nothing of a call's graph may survive it in the handle: not the node, the arguments or what made
// them.
TEST(AutogradGraph, GraphOfTheCallerIsNotKeptAlive) {
  torch::nn::Linear net(4, 4);
  auto f = tandem::compile(net, [net](const Tensor& x) mutable { return net(x).sum(); });
  f(leaf({2, 4}) * 2);
  const AllocatedBytes bytes;
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> argument;
  for (bool backward : {false, true}) {
    Tensor x = leaf({2, 4}).exp();  // exp saves its result
    argument.emplace(x.getIntrusivePtr());
    Tensor y = f(x);
    x.reset();
    if (backward) y.backward();
    y.reset();
    EXPECT_TRUE(argument->expired());
    for (Tensor& p : net->parameters()) p.mutable_grad().reset();
    EXPECT_EQ(bytes.now(), 0);
  }
}

// The gradient of a parameter is new memory that the parameter owns, not a copy of it.
TEST(AutogradGraph, GradientsAreHandedOverWithoutACopy) {
  torch::nn::Linear net(64, 64);
  auto f = tandem::compile(net, [net](const Tensor& x) mutable { return net(x).sum(); });
  const Tensor x = torch::randn({2, 64});
  const auto held_by = [&](auto function) {
    for (Tensor& p : net->parameters()) p.mutable_grad().reset();
    function(x).backward();
    for (Tensor& p : net->parameters()) p.mutable_grad().reset();
    const AllocatedBytes bytes;
    function(x).backward();
    return bytes.now();
  };
  EXPECT_EQ(held_by(f), held_by([net](const Tensor& t) mutable { return net(t).sum(); }));
}

TEST(AutogradGraph, SequenceNumbersGrowWithTheCalls) {
  auto f = tandem::compile([](const Tensor& x) { return x.exp(); });
  const Tensor x = leaf({4});
  const Tensor first = f(x), eager = x.exp(), second = f(x);
  EXPECT_LT(first.grad_fn()->sequence_nr(), eager.grad_fn()->sequence_nr());
  EXPECT_LT(eager.grad_fn()->sequence_nr(), second.grad_fn()->sequence_nr());
}

}  // namespace
}  // namespace tandem::test
