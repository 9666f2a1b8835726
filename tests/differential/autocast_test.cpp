/// Autocast around the call and around its backward, each on or off: eager's bits.
#include "support/environment.h"
#include "support/same_bits.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using at::Tensor;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// Autocast on a device, on or off, for a scope.
class Region {
 public:
  explicit Region(bool enabled, at::ScalarType dtype = at::kBFloat16, at::DeviceType on = at::kCPU)
      : device_(on),
        before_(at::autocast::is_autocast_enabled(on)),
        dtype_(at::autocast::get_autocast_dtype(on)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(on, enabled);
    at::autocast::set_autocast_dtype(on, dtype);
  }
  ~Region() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, before_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  at::DeviceType device_;
  bool before_;
  at::ScalarType dtype_;
};

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Products, a convolution, attention, an op of autocast's float32 list, and what passes through.
std::vector<std::pair<const char*, Function>> programs() {
  return {
      {"perceptron",
       [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
         const Tensor hidden = torch::relu(a[0].mm(a[1]));
         return {torch::addmm(a[2].select(0, 0), hidden, a[2]).tanh()};
       }},
      {"attention",
       [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
         const Tensor q = a[0].mm(a[1]).view({1, 4, 4}), k = a[0].mm(a[2]).view({1, 4, 4});
         return {torch::matmul((torch::matmul(q, k.transpose(1, 2)) / 2).softmax(-1), q)};
       }},
      {"convolution",
       [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
         const Tensor image = a[0].view({1, 1, 4, 4}), kernel = a[1].view({4, 1, 2, 2});
         return {torch::conv2d(image, kernel).relu().flatten(1)};
       }},
      {"loss and two results",
       [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
         const Tensor y = a[0].mm(a[1]), z = y.mm(a[2]);
         return {torch::mse_loss(z, a[0]).view({1}), torch::cat({y, z}).cos()};
       }},
      {"products of products",
       [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
         return {torch::einsum("ij,jk,kl->il", {a[0], a[1], a[2]}), a[0].mv(a[1].select(0, 1))};
       }},
  };
}

struct States {
  bool forward, backward;
  at::ScalarType dtype;
};

std::vector<Tensor> run(const Function& call, const States& states,
                        const std::vector<size_t>& used) {
  torch::manual_seed(2);
  const std::vector<Tensor> leaves = {leaf({4, 4}), leaf({4, 4}), leaf({4, 4})};
  std::vector<Tensor> results;
  {
    const Region region(states.forward, states.dtype);
    results = call(leaves);
  }
  Tensor loss = torch::zeros({});
  for (size_t i : used) loss = loss + results[i].to(torch::kFloat).exp().sum();
  const Region region(states.backward, states.dtype);
  loss.backward();
  std::vector<Tensor> seen;
  for (const Tensor& result : results) seen.push_back(result.detach());
  for (const Tensor& one : leaves) {
    if (one.grad().defined()) seen.push_back(one.grad());
  }
  return seen;
}

TEST(Autocast, ForwardAndBackwardEachInItsState) {
  for (const auto& [name, program] : programs()) {
    const auto compiled =
        tandem::compile_boxed([=](std::vector<Tensor> list) { return program(list); });
    const Function call = [&](const std::vector<Tensor>& list) { return compiled(list); };
    torch::manual_seed(2);
    const size_t results = program({leaf({4, 4}), leaf({4, 4}), leaf({4, 4})}).size();
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      for (const bool forward : {false, true}) {
        for (const bool backward : {false, true}) {
          for (size_t all = 0; all < results; ++all) {
            std::vector<size_t> used;
            for (size_t i = all; i < results; ++i) used.push_back(i);
            SCOPED_TRACE(std::string(name) + ", forward " + (forward ? "in" : "out") +
                         ", backward " + (backward ? "in, " : "out, ") + toString(dtype));
            const States states{forward, backward, dtype};
            WideRun wide_run;
            const std::vector<Tensor> expected = [&] {
              const WideRun::Scope scope(wide_run);
              return run(program, states, used);
            }();
            for (int again = 0; again < 2; ++again) {
              const std::vector<Tensor> found = run(call, states, used);
              ASSERT_EQ(found.size(), expected.size());
              for (size_t i = 0; i < expected.size(); ++i)
                EXPECT_TRUE(same_bits(expected[i], found[i])) << "value " << i;
            }
          }
        }
      }
    }
    EXPECT_EQ(compiled.stats().compiles, 4) << name;  // on and off, with each dtype set
  }
}

// Float32 gradients and bfloat16 ones differ: the test above compares something.
TEST(Autocast, TheStateOfTheBackwardMatters) {
  const Function program = programs()[0].second;
  const auto outside = run(program, {false, false, at::kBFloat16}, {0});
  const auto inside = run(program, {false, true, at::kBFloat16}, {0});
  EXPECT_TRUE(at::equal(outside[0], inside[0]));
  EXPECT_FALSE(at::equal(outside[1], inside[1]));
}

TEST(Autocast, OneGraphDifferentiatedInAndOutOfARegion) {
  const auto function = [](const Tensor& x, const Tensor& w) { return x.mm(w).relu().sum(); };
  const auto compiled = tandem::compile(function);
  const Tensor x = leaf({4, 4}), w = leaf({4, 4});
  const auto gradients = [&](const Tensor& y) {
    std::vector<Tensor> found;
    for (const bool in : {false, true, false}) {
      const Region region(in);
      for (const Tensor& one : torch::autograd::grad({y}, {x, w}, {}, /*retain_graph=*/true))
        found.push_back(one);
    }
    return found;
  };
  const std::vector<Tensor> expected = gradients(function(x, w)), found = gradients(compiled(x, w));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
}

TEST(Autocast, GradientsOfGradientsEachInItsState) {
  const auto function = [](const Tensor& x, const Tensor& w) { return x.mm(w).sin().sum(); };
  const auto compiled = tandem::compile(function);
  const Tensor x = leaf({4, 4}), w = leaf({4, 4});
  const auto gradients = [&](const Tensor& y, bool first, bool second) {
    std::vector<Tensor> found;
    Tensor penalty = torch::zeros({});
    {
      const Region region(first);
      for (const Tensor& one :
           torch::autograd::grad({y}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/true)) {
        found.push_back(one.detach());
        penalty = penalty + one.to(torch::kFloat).pow(2).sum();
      }
    }
    const Region region(second);
    for (const Tensor& one : torch::autograd::grad({penalty}, {x, w})) found.push_back(one);
    return found;
  };
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      SCOPED_TRACE(std::string(first ? "first in" : "first out") +
                   (second ? ", second in" : ", second out"));
      const std::vector<Tensor> expected = gradients(function(x, w), first, second);
      const std::vector<Tensor> found = gradients(compiled(x, w), first, second);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
    }
  }
}

/// Counts the graphs that are lowered.
struct Counting : Backend {
  std::string_view name() const override { return "counting"; }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    ++(context.role == GraphRole::backward ? backwards : others);
    return inner->compile(graph, context);
  }
  std::shared_ptr<Backend> inner = tandem::backend("eager");
  int backwards = 0, others = 0;
};

TEST(Autocast, ABackwardInARegionIsCompiledOnceAndOnlyThere) {
  const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  const auto backend = std::make_shared<Counting>();
  const auto compiled = tandem::compile([](const Tensor& x) { return x.mm(x); },
                                        {.backend = std::static_pointer_cast<Backend>(backend)});
  const Tensor x = leaf({4, 4});
  for (int i = 0; i < 3; ++i) compiled(x).sum().backward();
  EXPECT_EQ(backend->backwards, 1);
  for (int i = 0; i < 3; ++i) {
    const Tensor y = compiled(x).sum();
    const Region region(true);
    y.backward();
  }
  EXPECT_EQ(backend->backwards, 2);
  EXPECT_EQ(backend->others, 1);
  // Autocast for a device that nothing here is on.
  for (int i = 0; i < 2; ++i) {
    const Tensor y = compiled(x).sum();
    const Region region(true, at::kHalf, at::kCUDA);
    y.backward();
  }
  EXPECT_EQ(backend->backwards, 2);
}

// ---- the thread's cache of cast weights ----

TEST(Autocast, TheWeightCacheHoldsNothingOfATrace) {
  const Tensor w = leaf({4, 4});
  for (const bool fails : {false, true}) {
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>
        cast_of_stand_in;
    const auto compiled = tandem::compile([&](const Tensor& x) {
      const Tensor y = x.mm(w);
      const Tensor cast = at::autocast::cached_cast(at::kBFloat16, x, at::kCPU);
      EXPECT_TRUE(at::autocast::cached_cast(at::kBFloat16, x, at::kCPU).is_same(cast));
      cast_of_stand_in.emplace(cast.getIntrusivePtr());
      if (fails) throw std::runtime_error("while it is traced");
      return y;
    });
    const Tensor x = leaf({4, 4});
    const Region region(true);
    const Tensor expected = x.mm(w);  // w and x are in the cache now
    if (fails) {
      EXPECT_THROW(compiled(x), std::runtime_error);
    } else {
      EXPECT_TRUE(at::equal(compiled(x), expected));
    }
    EXPECT_TRUE(cast_of_stand_in->expired()) << "the cache holds a traced tensor";
    EXPECT_TRUE(at::equal(x.mm(w), expected));
  }
}

// A compiled call casts for itself: it neither reads nor fills the cache.
TEST(Autocast, WeightsWrittenInsideARegionAreSeen) {
  const Tensor w = leaf({4, 4}), x = torch::randn({4, 4});
  const auto compiled = tandem::compile([&](const Tensor& a) { return a.mm(w); });
  const Region region(true);
  const Tensor before = compiled(x);
  {
    const torch::NoGradGuard no_grad;
    w.mul_(2);
  }
  at::autocast::clear_cache();
  EXPECT_TRUE(at::equal(compiled(x), x.mm(w)));
  EXPECT_FALSE(at::equal(compiled(x), before));
}

// ---- CUDA autocast, with tensors of the CPU ----

TEST(Autocast, CudaAutocastIsGuardedAndCastsNothingHere) {
  const auto compiled = tandem::compile([](const Tensor& x) { return x.mm(x); });
  const Tensor x = torch::randn({4, 4});
  const Tensor expected = compiled(x);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const Region region(true, dtype, at::kCUDA);
    EXPECT_TRUE(same_bits(compiled(x), expected));
  }
  EXPECT_EQ(compiled.stats().compiles, 3);
  EXPECT_NE(compiled.stats().misses[2].reason.find("CUDA autocast dtype is bf16"),
            std::string::npos)
      << compiled.stats().misses[2].reason;
  for (const Entry& entry : compiled.entries())
    EXPECT_EQ(entry.forward().node_count(), 1) << ir::print(entry.forward());
}

}  // namespace
}  // namespace tandem::test
