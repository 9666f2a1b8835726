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
