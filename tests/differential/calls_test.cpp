/// One behaviour of a call per test, each compared with eager in everything a caller can see.
#include "support/environment.h"
#include "support/like_eager.h"
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

Case one_leaf() {
  at::Tensor x = leaf({4, 4});
  return {{x}, {}};
}

Case one_non_leaf() {
  at::Tensor p = leaf({4, 4});
  return {{p * 1.5}, {p}};
}

Case no_grad() { return {{torch::randn({4, 4})}, {}}; }

Case two_leaves() { return {{leaf({4, 4}), leaf({4, 4})}, {}}; }

TEST(Calls, FreshResults) {
  expect_like_eager(
      two_leaves, [](const Tensors& a) { return Tensors{(a[0] * a[1]).sin(), a[0].exp().sum()}; });
}

TEST(Calls, ArgumentThatIsNoLeaf) {
  expect_like_eager(one_non_leaf, [](const Tensors& a) { return Tensors{a[0].tanh() * a[0]}; });
}

TEST(Calls, InferenceWithoutAnyGradient) {
  expect_like_eager(no_grad,
                    [](const Tensors& a) { return Tensors{a[0].relu() + 1, a[0].argmax(1)}; });
}

TEST(Calls, IntegerAndDetachedResultsBesideDifferentiableOnes) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    return Tensors{a[0].exp(), a[0].argmax(1), (a[0] * 2).detach(), a[0] > 0};
  });
}

TEST(Calls, UndefinedResultAndArgument) {
  expect_like_eager(
      [] { return Case{{leaf({3}), at::Tensor()}, {}}; },
      [](const Tensors& a) { return Tensors{a[0] * 2, a[1].defined() ? a[0] : at::Tensor()}; });
}

TEST(Calls, ArgumentReturnedAsItIs) {
  expect_like_eager(two_leaves, [](const Tensors& a) { return Tensors{a[1], a[0] * a[1], a[1]}; });
}

TEST(Calls, ViewsOfAnArgument) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    return Tensors{a[0].view(-1), a[0][0], a[0].detach(), a[0].t().slice(0, 1, 3)};
  });
}

TEST(Calls, ViewsOfAnArgumentThatIsNoLeaf) {
  expect_like_eager(one_non_leaf,
                    [](const Tensors& a) { return Tensors{a[0].view({2, 8}), a[0].exp()}; });
}

// The version of memory that both show moves once: the view asks for its new history after that.
TEST(Calls, ViewOfANonLeafWrittenAfterItsDetachedAlias) {
  const auto make = [] {
    const at::Tensor p = leaf({3}), base = p * -0.5;
    return Case{{base.view({3}), base.detach()}, {p, base}};
  };
  expect_like_eager(make, [](const Tensors& a) {
    a[1].t_();
    a[0].square_();
    return Tensors{a[0]};
  });
  expect_like_eager(make, [](const Tensors& a) {
    a[1].add_(1);
    a[0].square_();
    return Tensors{a[0]};
  });
}

TEST(Calls, ResultsOfOneSplitShareTheirNode) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    std::vector<at::Tensor> parts = a[0].split(2);
    return Tensors{parts[0], parts[1]};
  });
}

TEST(Calls, ViewMadeInNoGradMode) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    torch::NoGradGuard guard;
    return Tensors{a[0].view(-1)};
  });
}

TEST(Calls, TheOnlyViewOfAnIntermediateIsFresh) {
  auto make = one_leaf;
  expect_like_eager(make, [](const Tensors& a) { return Tensors{(a[0] * 2).view(-1)}; });
}

TEST(Calls, SameTensorReturnedTwice) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    at::Tensor y = a[0].exp();
    return Tensors{y, y};
  });
}

// Equal subexpressions are merged in the graph; the results must still be two tensors.
TEST(Calls, EqualResultsDoNotShareMemory) {
  expect_like_eager(one_leaf, [](const Tensors& a) { return Tensors{a[0] + 1, a[0] + 1}; });
}

// A constant of the graph must not be handed out: the caller may write to it.
TEST(Calls, ConstantResultIsACopy) {
  auto f = tandem::compile(
      [](const at::Tensor& x) { return std::pair{torch::tensor({1.0f, 2.0f, 3.0f}), x * 2}; });
  at::Tensor x = torch::randn({3});
  f(x).first.fill_(9);
  EXPECT_TRUE(same_bits(f(x).first, torch::tensor({1.0f, 2.0f, 3.0f})));
}

TEST(Calls, SameArgumentTwice) {
  expect_like_eager(
      [] {
        at::Tensor x = leaf({4});
        return Case{{x, x}, {}};
      },
      [](const Tensors& a) { return Tensors{a[0] * a[1].exp()}; });
}

TEST(Calls, ArgumentWrittenWithoutGrad) {
  expect_like_eager(no_grad, [](const Tensors& a) {
    a[0].mul_(2).add_(1);
    return Tensors{a[0] * 3};
  });
}

TEST(Calls, ArgumentWrittenThroughAView) {
  expect_like_eager(no_grad, [](const Tensors& a) {
    a[0].view(-1).slice(0, 2, 6).zero_();
    a[0].t().select(0, 1).add_(5);
    return Tensors{a[0].sum(), a[0].view(-1)};
  });
}

TEST(Calls, LeafWrittenUnderNoGrad) {
  expect_like_eager(two_leaves, [](const Tensors& a) {
    {
      torch::NoGradGuard guard;
      a[0].add_(1);
    }
    return Tensors{a[0] * a[1]};
  });
}

TEST(Calls, WriteThroughDetachBumpsTheVersion) {
  expect_like_eager(one_non_leaf, [](const Tensors& a) {
    a[0].detach().mul_(2);
    return Tensors{a[0] * 2};
  });
}

TEST(Calls, WriteThroughDataDoesNotBumpTheVersion) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    at::Tensor y = a[0] * a[0];
    a[0].data().mul_(2);
    return Tensors{y};
  });
}

TEST(Calls, OutVariantWritesItsArgument) {
  expect_like_eager([] { return Case{{torch::randn({4}), torch::randn({4})}, {}}; },
                    [](const Tensors& a) {
                      at::Tensor out = a[1];
                      torch::mul_out(out, a[0], a[0]);
                      return Tensors{out + 1};
                    });
}

TEST(Calls, TwoArgumentsSwapTheirData) {
  expect_like_eager([] { return Case{{torch::randn({4}), torch::randn({4})}, {}}; },
                    [](const Tensors& a) {
                      at::Tensor old = a[0].clone();
                      a[0].copy_(a[1]);
                      a[1].copy_(old);
                      return Tensors{a[0] - a[1]};
                    });
}

// Eager raises when the backward reads what was overwritten, not in the call.
TEST(Calls, SavedThenOverwrittenRaisesInBackward) {
  expect_like_eager([] { return Case{{leaf({4}), torch::randn({4})}, {}}; },
                    [](const Tensors& a) {
                      at::Tensor y = a[0] * a[1];
                      a[1].add_(1);
                      return Tensors{y, a[0].exp()};
                    });
}

TEST(Calls, WritingALeafThatRequiresGradIsEagersError) {
  expect_both_throw(
      one_leaf,
      [](const Tensors& a) {
        a[0].mul_(2);
        return Tensors{a[0]};
      },
      "a leaf Variable that requires grad is being used in an in-place operation");
}

Case inference_tensor() {
  const c10::InferenceMode region;
  return {{torch::randn({4, 4})}, {}};
}

TEST(Calls, ViewsOfInferenceTensorsMustNotBeWritten) {
  const std::string words = "Inplace update to inference tensor outside InferenceMode";
  using Write = void (*)(const at::Tensor& x);
  for (const Write write : std::initializer_list<Write>{
           [](const at::Tensor& x) { x.mul_(2); }, [](const at::Tensor& x) { x.view(-1).mul_(2); },
           [](const at::Tensor& x) { x[1].zero_(); },
           [](const at::Tensor& x) { x.t().narrow(0, 1, 2).copy_(torch::ones({2, 4})); },
           [](const at::Tensor& x) { x.reshape({16})[3].fill_(1); },
           [](const at::Tensor& x) { x.chunk(2)[1].add_(1); }}) {
    expect_both_throw(
        inference_tensor,
        [write](const Tensors& a) {
          write(a[0]);
          return Tensors{a[0] * 2};
        },
        words);
  }
  // A copy is no view, and detach() gives a version counter.
  expect_like_eager(inference_tensor, [](const Tensors& a) {
    at::Tensor copy = a[0].t().reshape({16});
    copy[3].fill_(1);
    a[0].detach().mul_(2);
    return Tensors{copy * 2, a[0].view(-1), a[0].view(-1) * 2};
  });
}

// Two on one memory, one of them written.
TEST(Calls, InferenceTensorsThatOverlapAreWrittenInARegion) {
  const auto program = [](const at::Tensor& x, const at::Tensor& y) {
    x.mul_(2);
    return y + 1;
  };
  const auto f = tandem::compile(program);
  const c10::InferenceMode region;
  for (int call = 0; call < 2; ++call) {
    const at::Tensor eager = torch::ones({6}), compiled = torch::ones({6});
    const at::Tensor expected = program(eager.slice(0, 0, 4), eager.slice(0, 2, 6));
    EXPECT_TRUE(at::equal(f(compiled.slice(0, 0, 4), compiled.slice(0, 2, 6)), expected));
    EXPECT_TRUE(at::equal(compiled, eager));
  }
}

at::Tensor closed_weight, closed_buffer;

TEST(Calls, ClosureOverAParameterAndAWrittenBuffer) {
  expect_like_eager(
      [] {
        closed_weight = leaf({4, 4});
        closed_buffer = torch::zeros({4});
        return Case{{leaf({4, 4})}, {closed_weight, closed_buffer}};
      },
      [](const Tensors& a) {
        at::Tensor y = a[0].matmul(closed_weight);
        {
          torch::NoGradGuard guard;
          closed_buffer.mul_(0.9).add_(y.mean(0));
        }
        return Tensors{y * closed_buffer, closed_weight.t(), closed_buffer};
      },
      // The closure's tensors are made anew for each run.
      {.closes_over = {&closed_weight, &closed_buffer}});
}

TEST(Calls, ClosureOverDataAndDetachOfAParameter) {
  expect_like_eager(
      [] {
        closed_weight = leaf({4});
        return Case{{leaf({4})}, {closed_weight}};
      },
      [](const Tensors& a) {
        return Tensors{a[0] * closed_weight.data() + closed_weight.detach() * closed_weight};
      },
      {.closes_over = {&closed_weight}});
}

TEST(Calls, ClosuresThatShareStorage) {
  expect_like_eager(
      [] {
        closed_weight = leaf({4, 4});
        closed_buffer = closed_weight.detach()[1];
        return Case{{leaf({4})}, {closed_weight}};
      },
      [](const Tensors& a) { return Tensors{(closed_weight * a[0]).sum(0) + closed_buffer}; },
      {.closes_over = {&closed_weight, &closed_buffer}});
}

// A generator of the user's own is drawn from in every call, and the default one is not.
TEST(Calls, OwnGenerator) {
  auto generator = at::detail::createCPUGenerator(5);
  auto f =
      tandem::compile([generator](const at::Tensor& x) { return x + at::rand({4}, generator); });
  const at::Tensor x = torch::zeros({4});
  const at::Tensor first = f(x), second = f(x);
  auto same = at::detail::createCPUGenerator(5);
  EXPECT_TRUE(same_bits(first, at::rand({4}, same)));
  EXPECT_TRUE(same_bits(second, at::rand({4}, same)));
}

TEST(Calls, GeneratorAsArgument) {
  auto f =
      tandem::compile([](const at::Tensor& x, at::Generator g) { return x + at::rand({4}, g); });
  const at::Tensor x = torch::zeros({4});
  auto a = at::detail::createCPUGenerator(1), b = at::detail::createCPUGenerator(2);
  EXPECT_TRUE(same_bits(f(x, a), at::rand({4}, at::detail::createCPUGenerator(1))));
  EXPECT_TRUE(same_bits(f(x, b), at::rand({4}, at::detail::createCPUGenerator(2))));
  EXPECT_EQ(f.stats().entries, 2);
}

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list g) {
    return {g[0] * 3 * context->get_saved_variables()[0]};  // not the derivative: it must be this
                                                            // formula that runs
  }
};

TEST(Calls, CustomAutogradFunction) {
  expect_like_eager(one_leaf, [](const Tensors& a) { return Tensors{Twice::apply(a[0]).sin()}; });
}

TEST(Calls, HookRegisteredInside) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    at::Tensor t = a[0] * 2;
    t.register_hook([](const at::Tensor& g) { return g * 3; });
    return Tensors{t.sin()};
  });
}

TEST(Calls, GradientInsideTheFunction) {
  expect_like_eager([] { return Case{{leaf({5, 1}), leaf({1, 8}), leaf({8, 1})}, {}}; },
                    [](const Tensors& a) {
                      at::Tensor u = torch::tanh(a[0].matmul(a[1])).matmul(a[2]);
                      at::Tensor g = torch::autograd::grad({u.sum()}, {a[0]}, {}, true, true)[0];
                      return Tensors{((g - u) * (g - u)).mean(), u};
                    });
}

TEST(Calls, FactoriesAndRandomNumbersInside) {
  expect_like_eager(one_leaf, [](const Tensors& a) {
    at::Tensor noise = torch::randn({4, 4}) + torch::rand_like(a[0]);
    at::Tensor index =
        torch::arange(4, torch::kFloat) + torch::tensor(std::vector<float>{1, 2, 3, 4});
    at::Tensor buffer = torch::empty({4, 4});
    buffer.fill_(2);
    torch::randperm(4);  // nobody reads it; the stream must move all the same
    return Tensors{a[0] * noise + index * buffer + torch::eye(4), torch::dropout(a[0], 0.5, true)};
  });
}

TEST(Calls, DtypePromotionAndNumbers) {
  expect_like_eager(
      [] { return Case{{leaf({3}), torch::arange(3), torch::randn({3}, torch::kDouble)}, {}}; },
      [](const Tensors& a) {
        return Tensors{a[0] * 2 + 1.5, a[1] * 2.5, a[1] / 2, a[0] + a[2], a[1] + true, a[0] * a[1]};
      });
}

TEST(Calls, AutocastRegionInside) {
  expect_like_eager([] { return Case{{leaf({8, 8}), leaf({8, 8})}, {}}; },
                    [](const Tensors& a) {
                      at::autocast::set_autocast_enabled(at::kCPU, true);
                      at::Tensor y = a[0].matmul(a[1]);
                      at::autocast::clear_cache();
                      at::autocast::set_autocast_enabled(at::kCPU, false);
                      return Tensors{y, y.to(torch::kFloat).sum()};
                    });
}

TEST(Calls, AutocastOutside) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  expect_like_eager([] { return Case{{leaf({8, 8}), leaf({8, 8})}, {}}; },
                    [](const Tensors& a) { return Tensors{a[0].matmul(a[1]).exp()}; });
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(Calls, ChannelsLast) {
  expect_like_eager(
      [] {
        at::Tensor x = torch::randn({2, 3, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast);
        return Case{{x.set_requires_grad(true), leaf({4, 3, 3, 3})}, {}};
      },
      [](const Tensors& a) { return Tensors{torch::conv2d(a[0], a[1]).relu()}; });
}

TEST(Calls, EmptyAndZeroDimensionalTensors) {
  expect_like_eager([] { return Case{{leaf({0, 4}), leaf({})}, {}}; },
                    [](const Tensors& a) { return Tensors{a[0] * a[1], a[0].sum() + a[1]}; });
}

TEST(Calls, ComplexNumbers) {
  expect_like_eager(
      [] { return Case{{torch::randn({3, 3}, torch::kComplexFloat).set_requires_grad(true)}, {}}; },
      [](const Tensors& a) { return Tensors{a[0].conj() * 2, torch::view_as_real(a[0])}; });
}

// Kernels read a copy of such memory; writes must reach the memory itself.
TEST(Calls, WrittenViewsOfConjugatedMemory) {
  const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  for (const char* backend : {"eager", "llvm"}) {
    SCOPED_TRACE(backend);
    const Options options{.backend = backend};
    const auto complex = [] { return torch::randn({3, 4}, torch::kComplexFloat); };
    expect_like_eager(
        [&] {
          const at::Tensor z = complex();
          return Case{{at::imag(z.conj())}, {z}};
        },
        [](const Tensors& a) {
          a[0].add_(1);
          a[0].mul_(a[0]);
          return Tensors{a[0] * 2};
        },
        options);
    expect_like_eager(
        [&] {
          const at::Tensor x = torch::randn({3, 4});
          return Case{{x._neg_view().t()}, {x}};
        },
        [](const Tensors& a) {
          const at::Tensor y = a[0] + 1;
          a[0].copy_(y);
          return Tensors{y, a[0].relu()};
        },
        options);
    expect_like_eager([&] { return Case{{complex()}, {}}; },
                      [](const Tensors& a) {
                        const at::Tensor i = at::imag(a[0].conj());
                        i.sub_(2);
                        return Tensors{i * i};
                      },
                      options);
    // Saved for the backward, which must see that it was written.
    expect_like_eager(
        [&] {
          const at::Tensor z = complex();
          return Case{{at::imag(z.conj()), leaf({3, 4})}, {z}};
        },
        [](const Tensors& a) {
          a[0].mul_(3);
          return Tensors{a[0] * a[1]};
        },
        options);
  }
}

TEST(Calls, InferenceModeOutside) {
  c10::InferenceMode mode;
  auto f = tandem::compile([](const at::Tensor& x) { return x * 2; });
  at::Tensor y = f(torch::ones({2}));
  EXPECT_TRUE(y.is_inference());
  EXPECT_EQ(y.sum().item<float>(), 4);
}

TEST(Calls, ResultWrittenAfterwardsRaisesEagersErrorInBackward) {
  const auto error_of = [](auto&& function) -> std::string {
    torch::manual_seed(3);
    at::Tensor x = leaf({4});
    at::Tensor y = function(x);  // the backward of exp reads its result
    y.detach().add_(1);
    try {
      y.sum().backward();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace()).substr(0, 120);
    }
    return "nothing";
  };
  auto eager = [](const at::Tensor& x) { return x.exp(); };
  const std::string expected = error_of(eager);
  EXPECT_NE(expected, "nothing");
  EXPECT_EQ(error_of(tandem::compile(eager)), expected);
}

// A parameter stepped between forward and backward: eager notices by the version counter, and so
// must we.
TEST(Calls, ParameterWrittenBeforeBackwardRaisesEagersError) {
  torch::nn::Linear net(4, 4);
  auto f = tandem::compile(net);
  at::Tensor y = f(leaf({2, 4})).sum();
  {
    torch::NoGradGuard guard;
    net->weight.add_(1);
  }
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST(Calls, BackwardTwiceNeedsRetainGraphAsInEager) {
  auto f = tandem::compile([](const at::Tensor& x) { return x.exp().sum(); });
  at::Tensor x = leaf({4});
  at::Tensor y = f(x);
  y.backward({}, /*retain_graph=*/true);
  at::Tensor first = x.grad().clone();
  y.backward();
  EXPECT_TRUE(same_bits(x.grad(), first * 2));
  try {
    y.backward();
    FAIL() << "expected eager's error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("Trying to backward through the graph a second time"),
              std::string::npos);
  }
}

// No zeros for a parameter that the loss does not depend on.
TEST(Calls, GradientOfAnUnusedBranchStaysUndefined) {
  at::Tensor a = leaf({4}), b = leaf({4});
  auto f = tandem::compile([](const at::Tensor& x, const at::Tensor& y) {
    return std::pair{x.exp().sum(), (y * x.detach()).sum()};
  });
  f(a, b).first.backward();
  EXPECT_TRUE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

TEST(Calls, UnusedInputHasNoGradient) {
  at::Tensor a = leaf({4}), b = leaf({4});
  auto f = tandem::compile([](const at::Tensor& x, const at::Tensor&) { return x.exp().sum(); });
  f(a, b).backward();
  EXPECT_FALSE(b.grad().defined());
}

// What it holds is nobody's business; that it is new in each call is.
TEST(Calls, MemoryThatNoOpHasSeenIsAResult) {
  for (int64_t size : {0, 3, 16, 17, 1000}) {
    const auto f = tandem::compile([=](const at::Tensor& x) {
      const at::Tensor y = torch::empty({size, 2});
      return std::tuple(x.exp(), y, y.t(), torch::empty({size}, torch::kLong),
                        torch::empty({size}));
    });
    const at::Tensor x = leaf({4});
    at::Tensor kept;
    for (int call = 0; call < 3; ++call) {
      auto [fresh, y, view, longs, other] = f(x);
      EXPECT_EQ(y.sizes(), at::IntArrayRef({size, 2}));
      EXPECT_EQ(view.sizes(), at::IntArrayRef({2, size}));
      EXPECT_TRUE(view.storage().is_alias_of(y.storage()));
      EXPECT_EQ(longs.scalar_type(), torch::kLong);
      EXPECT_EQ(other.sizes(), at::IntArrayRef({size}));
      EXPECT_FALSE(y.requires_grad());
      y.fill_(call);
      if (kept.defined()) EXPECT_TRUE(kept.eq(call - 1).all().item<bool>());
      kept = y;
      fresh.sum().backward();
    }
    EXPECT_EQ(f.stats().traces, 1);
  }
}

// docs/reference/differences.md
TEST(Calls, VersionsOfFreshResultsBeginWithTheCall) {
  const auto program = [](const at::Tensor& x) { return x.exp().mul_(2); };
  const at::Tensor x = torch::ones({3}), y = tandem::compile(program)(x);
  EXPECT_EQ(program(x)._version(), 1);
  EXPECT_EQ(y._version(), 0);
  y.add_(1);
  EXPECT_EQ(y._version(), 1);
}

TEST(Calls, ExpandedTangent) {
  expect_like_eager(one_leaf,
                    [](const Tensors& a) { return Tensors{(a[0] * a[0]).t().reshape({2, 8})}; });
}

TEST(Calls, DroppedResultsFreeTheirGraph) {
  at::Tensor x = leaf({4});
  c10::weak_intrusive_ptr<c10::TensorImpl> weak(x.getIntrusivePtr());
  auto f = tandem::compile([](const at::Tensor& t) { return t.exp(); });
  {
    at::Tensor y = f(x);
  }
  {
    at::Tensor y = f(x);
    y.sum().backward();
  }
  f.reset();
  x.reset();
  EXPECT_TRUE(weak.expired());  // no cycle between node and result keeps the argument alive
}

}  // namespace
}  // namespace tandem::test
