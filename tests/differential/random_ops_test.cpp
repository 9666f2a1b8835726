/// Every op that draws random numbers, forward and backward, from the default generator and from
/// the user's: eager's numbers, and a generator that ends where eager's does.
#include "support/environment.h"
#include "support/error_text.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using Generator = std::optional<at::Generator>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// Draws, given floats of sizes {4, 6}.
struct Draw {
  const char* name;
  std::function<Tensor(const Tensor&, const Generator&)> call;
  bool takes_generator = true;
};

Tensor sum_of(const std::tuple<Tensor, Tensor>& pair) {
  return std::get<0>(pair).sum() + std::get<1>(pair).to(torch::kFloat).sum();
}

std::vector<Draw> all_draws() {
  const auto fill = [](const char* name, auto body) {
    return Draw{name, [=](const Tensor& x, const Generator& g) {
                  Tensor made = x.detach().clone();
                  body(made, g);
                  return made;
                }};
  };
  std::vector<Draw> draws = {
      {"rand", [](const Tensor&, const Generator& g) { return at::rand({4, 6}, g); }},
      {"rand_like", [](const Tensor& x, const Generator&) { return at::rand_like(x); }, false},
      {"randn", [](const Tensor&, const Generator& g) { return at::randn({4, 6}, g); }},
      {"randn complex",
       [](const Tensor&, const Generator& g) {
         return at::abs(at::randn({4, 6}, g, at::TensorOptions(at::kComplexFloat)));
       }},
      {"randn_like", [](const Tensor& x, const Generator&) { return at::randn_like(x); }, false},
      {"randint", [](const Tensor&, const Generator& g) { return at::randint(9, {4, 6}, g); }},
      {"randint from",
       [](const Tensor&, const Generator& g) { return at::randint(3, 9, {4, 6}, g); }},
      {"randint_like",
       [](const Tensor& x, const Generator&) { return at::randint_like(x.detach(), 7); }, false},
      {"randperm", [](const Tensor&, const Generator& g) { return at::randperm(9, g); }},
      {"bernoulli",
       [](const Tensor& x, const Generator& g) { return at::bernoulli(x.detach().sigmoid(), g); }},
      {"bernoulli p",
       [](const Tensor& x, const Generator& g) { return at::bernoulli(x.detach(), 0.3, g); }},
      {"normal of tensors",
       [](const Tensor& x, const Generator& g) { return at::normal(x, x.exp(), g); }},
      {"normal of a mean",
       [](const Tensor& x, const Generator& g) { return at::normal(x, 2.0, g); }},
      {"normal of a deviation",
       [](const Tensor& x, const Generator& g) { return at::normal(1.0, x.exp(), g); }},
      {"normal of sizes",
       [](const Tensor&, const Generator& g) { return at::normal(1.0, 2.0, {4, 6}, g); }},
      {"multinomial",
       [](const Tensor& x, const Generator& g) {
         return at::multinomial(x.detach().softmax(1), 3, false, g);
       }},
      {"multinomial with replacement",
       [](const Tensor& x, const Generator& g) {
         return at::multinomial(x.detach().softmax(1), 8, true, g);
       }},
      {"poisson", [](const Tensor& x, const Generator& g) { return at::poisson(x.exp(), g); }},
      {"binomial",
       [](const Tensor& x, const Generator& g) {
         return at::binomial(torch::full({4, 6}, 9.0), x.detach().sigmoid(), g);
       }},
      {"standard gamma",
       [](const Tensor& x, const Generator& g) { return at::_standard_gamma(x.exp(), g); }},
      {"dirichlet", [](const Tensor& x,
                       const Generator& g) { return at::_sample_dirichlet(x.detach().exp(), g); }},
      {"dropout", [](const Tensor& x, const Generator&) { return at::dropout(x, 0.4, true); },
       false},
      {"dropout without training",
       [](const Tensor& x, const Generator&) { return at::dropout(x, 0.4, false) * at::rand({1}); },
       false},
      {"native_dropout",
       [](const Tensor& x, const Generator&) { return sum_of(at::native_dropout(x, 0.4, true)); },
       false},
      {"feature_dropout",
       [](const Tensor& x, const Generator&) { return at::feature_dropout(x, 0.4, true); }, false},
      {"alpha_dropout",
       [](const Tensor& x, const Generator&) { return at::alpha_dropout(x, 0.4, true); }, false},
      {"feature_alpha_dropout",
       [](const Tensor& x, const Generator&) { return at::feature_alpha_dropout(x, 0.4, true); },
       false},
      {"dropout2d",
       [](const Tensor& x, const Generator&) {
         return F::dropout2d(x.view({2, 3, 2, 2}), F::Dropout2dFuncOptions().p(0.4));
       },
       false},
      {"rrelu",
       [](const Tensor& x, const Generator& g) { return at::rrelu(x, 0.1, 0.4, true, g); }},
      {"rrelu_",
       [](const Tensor& x, const Generator& g) {
         Tensor made = x * 1;
         return at::rrelu_(made, 0.1, 0.4, true, g);
       }},
      {"gumbel_softmax",
       [](const Tensor& x, const Generator&) {
         return F::gumbel_softmax(x, F::GumbelSoftmaxFuncOptions().hard(true).dim(1));
       },
       false},
      {"fractional_max_pool2d",
       [](const Tensor& x, const Generator&) {
         return F::fractional_max_pool2d(
             x.view({1, 1, 4, 6}),
             F::FractionalMaxPool2dFuncOptions(2).output_size(torch::ExpandingArray<2>({2, 3})));
       },
       false},
      {"fractional_max_pool3d",
       [](const Tensor& x, const Generator&) {
         return F::fractional_max_pool3d(
             x.view({1, 2, 3, 2, 2}),
             F::FractionalMaxPool3dFuncOptions(1).output_size(torch::ExpandingArray<3>({2, 1, 1})));
       },
       false},
      {"scaled_dot_product_attention",
       [](const Tensor& x, const Generator&) {
         const Tensor q = x.view({1, 1, 4, 6});
         return at::scaled_dot_product_attention(q, q, q, {}, 0.4);
       },
       false},
  };
  draws.push_back(fill("bernoulli_", [](Tensor& t, const Generator& g) { t.bernoulli_(0.3, g); }));
  draws.push_back(fill("bernoulli_ of a tensor", [](Tensor& t, const Generator& g) {
    t.bernoulli_(torch::full({4, 6}, 0.6), g);
  }));
  draws.push_back(fill("normal_", [](Tensor& t, const Generator& g) { t.normal_(1, 2, g); }));
  draws.push_back(fill("uniform_", [](Tensor& t, const Generator& g) { t.uniform_(1, 2, g); }));
  draws.push_back(
      fill("exponential_", [](Tensor& t, const Generator& g) { t.exponential_(2, g); }));
  draws.push_back(fill("geometric_", [](Tensor& t, const Generator& g) { t.geometric_(0.3, g); }));
  draws.push_back(fill("cauchy_", [](Tensor& t, const Generator& g) { t.cauchy_(0, 1, g); }));
  draws.push_back(
      fill("log_normal_", [](Tensor& t, const Generator& g) { t.log_normal_(0, 1, g); }));
  draws.push_back(fill("random_", [](Tensor& t, const Generator& g) { t.random_(g); }));
  draws.push_back(fill("random_ to", [](Tensor& t, const Generator& g) { t.random_(9, g); }));
  draws.push_back(fill("random_ from", [](Tensor& t, const Generator& g) { t.random_(3, 9, g); }));
  draws.push_back(fill("uniform_ of a transposed view",
                       [](Tensor& t, const Generator& g) { t.t().uniform_(0, 1, g); }));
  draws.push_back(fill("normal_ of a column",
                       [](Tensor& t, const Generator& g) { t.select(1, 2).normal_(0, 1, g); }));
  draws.push_back(
      fill("dropout_", [](Tensor& t, const Generator&) { at::dropout_(t, 0.4, true); }));
  draws.back().takes_generator = false;
  draws.push_back(fill("alpha_dropout_",
                       [](Tensor& t, const Generator&) { at::alpha_dropout_(t, 0.4, true); }));
  draws.back().takes_generator = false;
  return draws;
}

/// What a training step records, with the generators set to `seed` before it.
std::vector<Tensor> step(const std::function<Tensor(const Tensor&)>& call, at::Generator own,
                         uint64_t seed) {
  torch::manual_seed(100);
  const Tensor x = leaf({4, 6});
  torch::manual_seed(seed);
  own.set_current_seed(seed);
  const Tensor y = call(x);
  std::vector<Tensor> seen = {y.detach().clone()};
  if (y.requires_grad()) y.sum().backward();
  if (x.grad().defined()) seen.push_back(x.grad());
  seen.push_back(at::rand({3}));       // where the generators stand
  seen.push_back(at::rand({3}, own));  // now
  return seen;
}

void expect_same(const std::function<Tensor(const Tensor&)>& eager,
                 const std::function<Tensor(const Tensor&)>& compiled, const at::Generator& own) {
  for (uint64_t seed : {1, 1, 7}) {
    WideRun wide_run;
    const std::vector<Tensor> expected = [&] {
      const WideRun::Scope scope(wide_run);
      return step(eager, own, seed);
    }();
    const std::vector<Tensor> found = step(compiled, own, seed);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(same_bits(expected[i], found[i])) << "value " << i << ", seed " << seed;
  }
}

TEST(RandomOps, ForwardFromTheDefaultGenerator) {
  const at::Generator own = at::detail::createCPUGenerator(5);
  for (const Draw& draw : all_draws()) {
    SCOPED_TRACE(draw.name);
    // A dead draw before, one that is read after: both shift the stream.
    const auto function = [draw](const Tensor& x) {
      draw.call(x, {});
      const Tensor drawn = draw.call(x, {}).to(torch::kFloat);
      return drawn.sum() * x.sum() + at::rand({1});
    };
    const auto compiled = tandem::compile(function);
    expect_same(function, [&](const Tensor& x) { return compiled(x); }, own);
    EXPECT_EQ(compiled.stats().traces, 1);
  }
}

TEST(RandomOps, FromTheUsersGeneratorClosedOverOrPassed) {
  const at::Generator own = at::detail::createCPUGenerator(5);
  for (const Draw& draw : all_draws()) {
    if (!draw.takes_generator) continue;
    SCOPED_TRACE(draw.name);
    const auto passed = [draw](const Tensor& x, const at::Generator& g) {
      draw.call(x, g);
      return draw.call(x, g).to(torch::kFloat).sum() * x.sum();
    };
    const auto closed = [=](const Tensor& x) { return passed(x, own); };
    const auto compiled_closed = tandem::compile(closed);
    expect_same(closed, [&](const Tensor& x) { return compiled_closed(x); }, own);
    const auto compiled = tandem::compile(passed);
    expect_same(closed, [&](const Tensor& x) { return compiled(x, own); }, own);
  }
}

/// Draws in its backward what `now` draws.
struct DrawsInBackward : torch::autograd::Function<DrawsInBackward> {
  static inline const Draw* now = nullptr;
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Tensor x = context->get_saved_variables()[0].detach();
    now->call(x, {});
    return {grads[0] * now->call(x, {}).to(torch::kFloat).sum()};
  }
};

TEST(RandomOps, InABackward) {
  const at::Generator own = at::detail::createCPUGenerator(5);
  const std::vector<Draw> draws = all_draws();
  for (const Draw& draw : draws) {
    SCOPED_TRACE(draw.name);
    DrawsInBackward::now = &draw;
    const auto function = [](const Tensor& x) { return DrawsInBackward::apply(x) + at::rand({1}); };
    const auto compiled = tandem::compile(function);
    expect_same(function, [&](const Tensor& x) { return compiled(x); }, own);
    EXPECT_EQ(compiled.stats().traces, 1);
  }
}

TEST(RandomOps, ModulesThatDraw) {
  const at::Generator own = at::detail::createCPUGenerator(5);
  auto attention =
      torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(6, 2).dropout(0.4));
  auto lstm = torch::nn::LSTM(torch::nn::LSTMOptions(6, 5).num_layers(2).dropout(0.4));
  auto layer = torch::nn::TransformerEncoderLayer(
      torch::nn::TransformerEncoderLayerOptions(6, 2).dropout(0.3).dim_feedforward(7));
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [=](const Tensor& x) mutable {
        const Tensor q = x.view({4, 1, 6});
        return std::get<0>(attention->forward(q, q, q));
      },
      [=](const Tensor& x) mutable { return std::get<0>(lstm->forward(x.view({4, 1, 6}))); },
      [=](const Tensor& x) mutable { return layer->forward(x.view({4, 1, 6})); },
  };
  for (const auto& function : functions) {
    const auto compiled = tandem::compile<Tensor(Tensor)>(function);
    expect_same(function, [&](const Tensor& x) { return compiled(x); }, own);
  }
}

// ---- what does not move a generator ----

/// Where the default generator stands, without moving it.
Tensor state() { return at::detail::getDefaultCPUGenerator().get_state(); }

TEST(RandomOps, ARefusedTraceDrawsNothing) {
  const auto compiled = tandem::compile([](const Tensor& x) {
    const Tensor y = x + torch::rand_like(x);
    return y * y.sum().item<float>();
  });
  const Tensor before = state();
  for (int i = 0; i < 2; ++i) EXPECT_THROW(compiled(torch::ones({3})), UnsupportedError);
  EXPECT_TRUE(at::equal(state(), before));
}

TEST(RandomOps, AFunctionThatThrowsWhileItIsTracedDrawsNothing) {
  const auto compiled = tandem::compile([](const Tensor& x) {
    const Tensor y = x + torch::rand_like(x);
    if (x.dim() == 1) throw std::invalid_argument("one dimension");
    return y;
  });
  const Tensor before = state();
  EXPECT_THROW(compiled(torch::ones({3})), std::invalid_argument);
  EXPECT_TRUE(at::equal(state(), before));
}

struct Broken : Backend {
  std::string_view name() const override { return "broken"; }
  std::unique_ptr<Executable> compile(const ir::Graph&, const CompileContext&) override {
    throw std::runtime_error("no kernels today");
  }
};

TEST(RandomOps, AFailedCompileAndAMissDrawNothing) {
  const auto function = [](const Tensor& x) { return torch::dropout(x, 0.5, true); };
  const Tensor before = state();
  {
    const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
    const auto broken = tandem::compile(
        function, {.backend = std::static_pointer_cast<Backend>(std::make_shared<Broken>())});
    EXPECT_ANY_THROW(broken(torch::ones({3})));
    EXPECT_TRUE(at::equal(state(), before));
  }
  const auto compiled =
      tandem::compile(function, {.max_entries = 1, .on_overflow = OnOverflow::error});
  compiled.prepare(torch::ones({3}));
  EXPECT_THROW(compiled(torch::ones({3}, torch::kDouble)), UserError);
  EXPECT_TRUE(at::equal(state(), before));
  compiled.prepare(torch::ones({4}));  // other sizes of the entry
  EXPECT_TRUE(at::equal(state(), before));
  compiled.explain(torch::ones({5}));
  EXPECT_TRUE(at::equal(state(), before));
}

// Eager has drawn before the kernel that raises, and not after it; so has a compiled call.
TEST(RandomOps, AKernelThatRaisesLeavesTheGeneratorWhereEagerDoes) {
  const auto function = [](const Tensor& x, const Tensor& i) {
    const Tensor y = x + torch::rand_like(x);
    return y.index_select(0, i) + torch::rand({1});
  };
  const auto compiled = tandem::compile(function);
  const Tensor x = torch::ones({3}), good = torch::tensor({0, 1}), bad = torch::tensor({0, 9});
  compiled(x, good);
  torch::manual_seed(1);
  EXPECT_ANY_THROW(function(x, bad));
  const Tensor expected = state();
  torch::manual_seed(1);
  EXPECT_ANY_THROW(compiled(x, bad));
  EXPECT_TRUE(at::equal(state(), expected));
}

TEST(RandomOps, VerifyingAnEntryDrawsNothing) {
  const auto function = [](const Tensor& x) { return torch::dropout(x, 0.5, true); };
  const auto compiled = tandem::compile(function, {.verify_every = 1});
  const Tensor x = torch::ones({8});
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(i);
    const Tensor expected = function(x), next = torch::rand({2});
    torch::manual_seed(i);
    EXPECT_TRUE(at::equal(compiled(x), expected));
    EXPECT_TRUE(at::equal(torch::rand({2}), next));
  }
}

}  // namespace
}  // namespace tandem::test
