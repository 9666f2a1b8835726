/// Gradients that the function takes inside, of parameters and of other tensors that it closes
/// over: by `tandem::grad`, and by libtorch's own function.
#include "support/like_eager.h"
#include "support/models.h"
#include "support/twins.h"

#include <functional>

namespace tandem::test {
namespace {

using at::Tensor;
using GradFunction = std::function<Tensors(const Tensors&, const Tensors&, const Tensors&,
                                           std::optional<bool>, bool, bool)>;

/// Both ways to ask: each test runs with each.
class InnerGradients : public testing::TestWithParam<bool> {
 protected:
  GradFunction grad() const {
    if (GetParam()) return &tandem::grad;
    return [](const Tensors& outputs, const Tensors& inputs, const Tensors& tangents,
              std::optional<bool> retain, bool create, bool unused) {
      return torch::autograd::grad(outputs, inputs, tangents, retain, create, unused);
    };
  }
};
INSTANTIATE_TEST_SUITE_P(By, InnerGradients, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Tandem" : "Libtorch"; });

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

TEST_P(InnerGradients, OfClosedOverLeavesAndAnArgument) {
  Tensor w, b;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3, 2});
        b = leaf({2});
        return Case{{leaf({4, 3})}, {w, b}};
      },
      [&](const Tensors& a) {
        const Tensor loss = at::addmm(b, a[0], w).tanh().sum();
        const Tensors found = gradients({loss}, {w, a[0], b}, {}, {}, false, false);
        return Tensors{found[0], found[1], found[2]};
      });
}

// The penalty is differentiated outside, with respect to the parameters that it is about.
TEST_P(InnerGradients, APenaltyOnGradientsOfParameters) {
  Tensor w, b;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3, 2});
        b = leaf({2});
        return Case{{torch::randn({4, 3})}, {w, b}};
      },
      [&](const Tensors& a) {
        const Tensor loss = at::addmm(b, a[0], w).tanh().pow(2).sum();
        Tensor penalty = loss;
        for (const Tensor& g : gradients({loss}, {w, b}, {}, {}, /*create_graph=*/true, false))
          penalty = penalty + g.pow(2).sum();
        return Tensors{penalty};
      });
}

// The function is traced again for the gradients of its gradients.
TEST_P(InnerGradients, APenaltyThatIsDifferentiatedTwice) {
  const auto gradients = grad();
  expect_twins_agree([&](Twin& twin) {
    const Tensor w = torch::randn({3, 2}, at::kDouble).set_requires_grad(true);
    const auto f = twin.compile([&](const Tensor& x) {
      const Tensor loss = at::mm(x, w).tanh().pow(2).sum();
      return gradients({loss}, {w}, {}, {}, /*create_graph=*/true, false)[0].pow(2).sum();
    });
    for (int i = 0; i < 2; ++i) {
      const Tensor x = torch::randn({4, 3}, at::kDouble).set_requires_grad(true);
      const Tensors first = torch::autograd::grad({f(x)}, {w, x}, {}, true, true);
      const Tensors second = torch::autograd::grad({first[0].sin().sum() + first[1].sum()}, {w, x});
      for (const Tensors& all : {first, second}) {
        for (const Tensor& one : all) twin.record_sum("gradient", one);
      }
    }
  });
}

TEST_P(InnerGradients, OfATensorThatIsNoLeaf) {
  Tensor w, h;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3});
        h = w.exp();
        return Case{{torch::randn({3})}, {w, h}};
      },
      [&](const Tensors& a) {
        const Tensor loss = (h * a[0]).sin().sum();
        const Tensor g = gradients({loss}, {h}, {}, {}, /*create_graph=*/true, false)[0];
        return Tensors{g, (g * g).sum() + loss};
      });
}

TEST_P(InnerGradients, OfAView) {
  Tensor w, row;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3, 2});
        row = w[1];
        return Case{{torch::randn({2})}, {w}};
      },
      [&](const Tensors& a) {
        const Tensor loss = (row * a[0]).sin().sum();
        return Tensors{gradients({loss}, {row}, {}, {}, false, false)[0]};
      });
}

TEST_P(InnerGradients, OfALeafThatIsUsedSeveralTimes) {
  Tensor w;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3, 3});
        return Case{{torch::randn({2, 3})}, {w}};
      },
      [&](const Tensors& a) {
        const Tensor loss = at::mm(at::mm(a[0], w).tanh(), w).sum() + w.pow(3).sum();
        return Tensors{gradients({loss}, {w, w}, {}, {}, false, false)[1] * 1};
      });
}

// The gradient is of what the tensor holds now: its history is that of the write.
TEST_P(InnerGradients, OfATensorThatTheFunctionHasWritten) {
  Tensor w, h;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3});
        h = w.exp();
        return Case{{torch::randn({3})}, {w, h}};
      },
      [&](const Tensors& a) {
        h.mul_(a[0]);
        return Tensors{gradients({h.sin().sum()}, {h}, {}, {}, false, false)[0]};
      });
}

TEST_P(InnerGradients, WithTangentsThatAreClosedOver) {
  Tensor w, v;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3});
        v = torch::randn({3});
        return Case{{torch::randn({3})}, {w, v}};
      },
      [&](const Tensors& a) {
        const Tensor y = w * a[0];
        const Tensor g = gradients({y}, {w}, {v}, /*retain_graph=*/true, false, false)[0];
        // The gradient of a tensor with respect to itself is the tangent.
        return Tensors{g, gradients({y}, {y}, {v}, {}, false, false)[0] * 2};
      });
}

TEST_P(InnerGradients, ThatAreUndefined) {
  Tensor w, other;
  std::vector<bool> defined;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3});
        other = leaf({3});
        return Case{{torch::randn({3})}, {w, other}};
      },
      [&](const Tensors& a) {
        const Tensor loss = (w * a[0]).sum(), seen = other.sin();
        const Tensors found = gradients({loss}, {other, w}, {}, {}, false, /*allow_unused=*/true);
        defined = {found[0].defined(), found[1].defined()};
        return Tensors{found[1], seen};
      });
  EXPECT_EQ(defined, (std::vector<bool>{false, true}));
}

TEST_P(InnerGradients, ThatAreUndefinedRaiseAsInEager) {
  Tensor w, other;
  const auto gradients = grad();
  expect_both_throw(
      [&] {
        w = leaf({3});
        other = leaf({3});
        return Case{{torch::randn({3})}, {w, other}};
      },
      [&](const Tensors& a) {
        return gradients({(w * a[0]).sum()}, {other}, {}, {}, false, false);
      },
      "appears to not have been used in the graph");
}

struct Scaled : torch::autograd::Function<Scaled> {
  static Tensor forward(torch::autograd::AutogradContext* context, Tensor x, double by) {
    context->saved_data["by"] = by;
    return x * by;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list tangents) {
    return {tangents[0] * context->saved_data["by"].toDouble(), Tensor()};
  }
};

// The node of a custom function leads to the tensor itself, not to what stands for it.
TEST_P(InnerGradients, ThroughACustomFunction) {
  Tensor w;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3});
        return Case{{torch::randn({3})}, {w}};
      },
      [&](const Tensors& a) {
        const Tensor loss = (Scaled::apply(w, 3.0) * a[0]).sin().sum();
        const Tensor g = gradients({loss}, {w}, {}, {}, /*create_graph=*/true, false)[0];
        return Tensors{g, loss + g.sum()};
      });
}

// The function knows the leaf by its view only: the way from one to the other lies in the trace.
TEST_P(InnerGradients, OfTheBaseOfAView) {
  Tensor w, row;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = leaf({3, 2});
        row = w[1];
        return Case{{torch::randn({2})}, {w}};
      },
      [&](const Tensors& a) {
        const Tensor loss = (row * a[0]).sin().sum();
        return Tensors{gradients({loss}, {w}, {}, {}, /*create_graph=*/true, false)[0]};
      });
}

// The view was taken before the leaf required grad: it has no history.
TEST_P(InnerGradients, OfALeafThroughItsView) {
  Tensor w, row;
  const auto gradients = grad();
  expect_like_eager(
      [&] {
        w = torch::randn({3, 2});
        row = w[1];
        w.requires_grad_(true);
        return Case{{torch::randn({2})}, {w}};
      },
      [&](const Tensors& a) {
        const Tensor loss = (w[1] * a[0]).sin().sum() + row.sum().detach();
        return Tensors{gradients({loss}, {w}, {}, {}, false, false)[0]};
      });
}

TEST_P(InnerGradients, AStepWrittenByHand) {
  const auto gradients = grad();
  expect_training_agrees([&](Twin& twin) {
    Mlp net(5, 8, 3, 0.2);
    auto step = twin.compile(net, [&](const Tensor& x, const Tensor& y) {
      const auto parameters = net->parameters();
      const Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
      const Tensors found = gradients({loss}, parameters, {}, {}, false, false);
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < found.size(); ++i) parameters[i].sub_(found[i], 0.1);
      return loss.detach();
    });
    for (int i = 0; i < 10; ++i)
      twin.record("loss", step(torch::randn({6, 5}), torch::randint(3, {6})));
    twin.record_state(*net);
    step.expect_one_compile();
  });
}

// libtorch asks whether two tensors have one size, and the like: questions are no nodes.
TEST(InnerGradientsForward, AreOrdinaryOps) {
  namespace forward_ad = torch::autograd::forward_ad;
  expect_like_eager([&] { return Case{{torch::randn({4, 3}), torch::randn({4, 3})}, {}}; },
                    [](const Tensors& a) {
                      const auto level = static_cast<int64_t>(forward_ad::enter_dual_level());
                      const Tensor y = at::_make_dual(a[0], a[1], level).sin();
                      const Tensor tangent = std::get<1>(at::_unpack_dual(y, level)) * 2;
                      forward_ad::exit_dual_level(static_cast<uint64_t>(level));
                      return Tensors{tangent};
                    });
}

// Outside of a compiled function it is libtorch's.
TEST(InnerGradientsOutside, AreLibtorchs) {
  const Tensor x = leaf({3});
  const Tensor y = (x * x).sum();
  const Tensor g = tandem::grad({y}, {x}, {}, {}, /*create_graph=*/true)[0];
  EXPECT_TRUE(g.equal(2 * x));
  EXPECT_TRUE(tandem::grad({g.sum()}, {x})[0].equal(torch::full({3}, 2.0)));
  EXPECT_FALSE(x.grad().defined());
}

}  // namespace
}  // namespace tandem::test
