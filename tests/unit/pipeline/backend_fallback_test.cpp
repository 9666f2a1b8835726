/// A backend that fails by a defect of its own: the graph runs on eager, once with a warning.
#include "runtime/with_fallback.h"
#include "support/environment.h"
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using T = at::Tensor;

/// Compiles nothing but inference; as eager does.
class DefectiveBackend final : public Backend {
 public:
  std::string_view name() const override { return "defective"; }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    if (context.role != GraphRole::inference) throw InternalError("lower", "groups wait");
    return backend("eager")->compile(graph, context);
  }
};

/// What is warned of meanwhile.
class Warnings {
 public:
  Warnings() {
    before_ = set_warning_sink([this](const std::string& line) { lines.push_back(line); });
  }
  ~Warnings() { set_warning_sink(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::vector<std::string> lines;

 private:
  WarningSink before_;
};

T product(const T& x, const T& y) { return (x * y).sin(); }

TEST(BackendFallback, ADefectRunsOnEagerWithOneWarning) {
  const EnvironmentVariable strict("TANDEM_STRICT", nullptr);
  const Warnings warnings;
  auto f = compile([](const T& x, const T& y) { return std::tuple(product(x, y), x * y); },
                   Options{.backend = std::make_shared<DefectiveBackend>()});
  const T x = torch::randn({3}).set_requires_grad(true), y = torch::randn({3});
  const auto [a, b] = f(x, y);
  EXPECT_TRUE(at::equal(a, product(x, y)));
  const int64_t with_all = f.stats().backend_fallbacks;
  EXPECT_GE(with_all, 2);  // forward, backward
  a.sum().backward();      // a backward of its own: of one result
  EXPECT_TRUE(at::equal(x.grad(), y * (x * y).cos()));
  EXPECT_GE(f.stats().backend_fallbacks, with_all);
  f(x, torch::randn({3}));
  ASSERT_EQ(warnings.lines.size(), 1U);
  EXPECT_EQ(warnings.lines[0],
            "tandem: warning: graph function.forward runs on the backend eager, because the "
            "backend defective has a defect; please report it: lower: groups wait");
  std::ostringstream text;
  text << f.stats();
  EXPECT_NE(text.str().find(" backend fallbacks"), std::string::npos) << text.str();
}

TEST(BackendFallback, WithoutADefectNothingIsCounted) {
  const EnvironmentVariable strict("TANDEM_STRICT", nullptr);
  const Warnings warnings;
  auto f = compile(product, Options{.backend = std::make_shared<DefectiveBackend>()});
  f(torch::ones({3}), torch::ones({3}));
  EXPECT_EQ(f.stats().backend_fallbacks, 0);
  EXPECT_TRUE(warnings.lines.empty());
}

// The gradients are compiled when they are asked for, as a function of their own.
TEST(BackendFallback, ADefectInGradientsOfGradients) {
  const EnvironmentVariable strict("TANDEM_STRICT", nullptr);
  const Warnings warnings;
  const auto second = [](const auto& function) {
    const T x = torch::linspace(0, 1, 3).set_requires_grad(true), y = torch::ones({3});
    const T first = torch::autograd::grad({function(x, y).sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.sum()}, {x})[0];
  };
  auto f = compile(product, Options{.backend = std::make_shared<DefectiveBackend>()});
  EXPECT_TRUE(at::equal(second(f), second(product)));
  EXPECT_GT(f.stats().backend_fallbacks, 2);
  EXPECT_EQ(warnings.lines.size(), 1U);
}

/// Says what it cannot do.
class ModestBackend final : public Backend {
 public:
  std::string_view name() const override { return "modest"; }
  std::unique_ptr<Executable> compile(const ir::Graph&, const CompileContext&) override {
    throw UnsupportedError("lower", "nothing is done");
  }
};

// That is no defect: on_unsupported decides.
TEST(BackendFallback, ARefusalOfABackendIsNone) {
  const EnvironmentVariable strict("TANDEM_STRICT", nullptr);
  const Warnings warnings;
  const T x = torch::ones({3});
  auto f = compile(product, Options{.backend = std::make_shared<ModestBackend>()});
  EXPECT_EQ(error_text<UnsupportedError>([&] { f(x, x); }), "lower: nothing is done");
  EXPECT_TRUE(warnings.lines.empty());
  auto g = compile(product, Options{.backend = std::make_shared<ModestBackend>(),
                                    .on_unsupported = OnUnsupported::eager,
                                    .name = "product"});
  EXPECT_TRUE(g(x, x).equal(product(x, x)));
  EXPECT_TRUE(g(x, x).equal(product(x, x)));
  EXPECT_EQ(g.stats().eager_calls, 2);
  EXPECT_EQ(g.stats().backend_fallbacks, 0);
  ASSERT_EQ(warnings.lines.size(), 1U);
  EXPECT_EQ(warnings.lines[0], "tandem: warning: product runs eagerly: lower: nothing is done");
}

// A defect that is none of the backend's is raised, whatever on_unsupported says.
TEST(BackendFallback, WithOnUnsupportedEagerADefectIsNoRefusal) {
  const EnvironmentVariable strict("TANDEM_STRICT", nullptr);
  const Warnings warnings;
  auto f = compile(product, Options{.backend = std::make_shared<DefectiveBackend>(),
                                    .on_unsupported = OnUnsupported::eager});
  const T x = torch::ones({3}).set_requires_grad(true);
  f(x, x).sum().backward();
  EXPECT_EQ(f.stats().eager_calls, 0);
  EXPECT_GE(f.stats().backend_fallbacks, 2);
  EXPECT_EQ(warnings.lines.size(), 1U);
}

TEST(BackendFallback, StrictRaisesIt) {
  const EnvironmentVariable strict("TANDEM_STRICT", "1");
  auto f = compile(product, Options{.backend = std::make_shared<DefectiveBackend>()});
  const T x = torch::ones({3}).set_requires_grad(true);
  EXPECT_EQ(error_text<InternalError>([&] { f(x, x); }), "lower: groups wait");
}

// Every program of the tests is strict unless a test says otherwise.
TEST(BackendFallback, TestsAreStrict) {
  ASSERT_NE(std::getenv("TANDEM_STRICT"), nullptr);
  EXPECT_STREQ(std::getenv("TANDEM_STRICT"), "1");
}

}  // namespace
}  // namespace tandem::test
