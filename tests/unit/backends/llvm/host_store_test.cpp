/// What the backend stores of a graph, and what it makes of it again.
#include "backends/eager/eager_backend.h"
#include "backends/llvm_cpu/cpu_compiler.h"
#include "loops/host/kernel_backend.h"
#include "support/error_text.h"
#include "support/same_bits.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::loops {
namespace {

/// Compiles as the CPU's does, and counts how often it is asked to.
class CountingCompiler final : public KernelCompiler {
 public:
  const Target& target() const override { return inner_->target(); }
  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes sizes) override {
    compiled += static_cast<int>(kernels.size());
    return inner_->compile(kernels, sizes);
  }
  Result load(const Kernel& kernel, std::string_view stored) override {
    ++loaded;
    return refuses ? Result{} : inner_->load(kernel, stored);
  }

  int compiled = 0, loaded = 0;
  bool refuses = false;  // what was stored does not fit this machine

 private:
  std::shared_ptr<KernelCompiler> inner_ = backends::llvm_cpu::make_cpu_compiler();
};

/// Kernels, a call of libtorch with constants, a list of tensors, a view, a constant of the graph
/// and a region.
const char* const kGraph = R"(graph g(%x: f32[8, 16] user_input 0, %w: f32[16, 16] user_input 1) {
  %c: f32[3] = constant {1.5, -2.0, 0.25}
  %a: f32[8, 16] = aten.exp(%x)
  %b: f32[8, 16] = aten.mul.Tensor(%a, %x)
  %p: f32[8, 16] = aten.mm(%b, %w)
  %q: f32[8, 32] = aten.cat([%p, %a], 1)
  %s: f32[8] = aten.sum.dim_IntList(%q, [1], false, dtype=none)
  %v: f32[16, 8] (1, 16) = aten.t(%p)
  %r: f32[16, 8] (1, 16) = region "checkpoint" (%v) graph (%i: f32[16, 8] (1, 16) user_input 0) {
    %o: f32[16, 8] (1, 16) = aten.sin(%i)
    return %o: output 0
  }
  return %s: output 0, %r: output 1, %c: output 2, none: output 3
})";

class HostStore : public ::testing::Test {
 protected:
  std::vector<at::Tensor> run(Executable& executable) {
    torch::manual_seed(0);
    std::vector<at::Tensor> inputs{torch::randn({8, 16}), torch::randn({16, 16})};
    return executable.run(inputs);
  }
  void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(test::same_bits(a[i], b[i])) << i;
  }

  const ir::Graph graph_ = ir::parse(kGraph);
  std::shared_ptr<CountingCompiler> compiler_ = std::make_shared<CountingCompiler>();
  std::shared_ptr<Backend> backend_ =
      make_backend(compiler_, backends::eager::make_backend(), /*check=*/false);
};

TEST_F(HostStore, LoadsWithoutCompilingAndRunsAsBefore) {
  auto compiled = backend_->compile(graph_, {});
  const auto expected = run(*compiled);
  const std::string stored = compiled->save();
  const std::string steps = compiled->listings()[0].text;
  const int kernels = compiler_->compiled;
  EXPECT_GT(kernels, 0);
  compiled.reset();  // and with it the code
  const auto loaded = backend_->load(stored, ir::parse(ir::print(graph_)), {});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(compiler_->compiled, kernels);
  EXPECT_EQ(compiler_->loaded, kernels);
  expect_same(run(*loaded), expected);
  expect_same(run(*loaded), expected);
  EXPECT_EQ(loaded->save(), stored);
  EXPECT_EQ(loaded->listings()[0].text, steps);
}

TEST_F(HostStore, CodeThatDoesNotFitIsGeneratedFromItsLoops) {
  const auto compiled = backend_->compile(graph_, {});
  const std::string stored = compiled->save();
  const int kernels = compiler_->compiled;
  compiler_->refuses = true;
  const auto loaded = backend_->load(stored, graph_, {});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(compiler_->compiled, 2 * kernels);
  expect_same(run(*loaded), run(*compiled));
}

TEST_F(HostStore, AnotherGraphIsRefused) {
  const std::string stored = backend_->compile(graph_, {})->save();
  const ir::Graph other = ir::parse(R"(graph g(%x: f32[8, 16] user_input 0) {
    %a: f32[8, 16] = aten.exp(%x)
    return %a: output 0
  })");
  EXPECT_EQ(test::error_text<UserError>([&] { backend_->load(stored, other, {}); }),
            "read: stored kernels do not belong to their graph\n  remedy: store the entry again");
}

}  // namespace
}  // namespace tandem::loops
