// Graphs of the same ops at many sizes: their kernels share code.
#include "backends/eager/eager_backend.h"
#include "backends/llvm_cpu/cpu_compiler.h"
#include "loops/host/kernel_backend.h"
#include "support/same_bits.h"
#include "tandem/ir/text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tandem::loops {
namespace {

using at::Tensor;

/// The CPU's, which counts the codes that are generated.
class CountingCompiler final : public KernelCompiler {
 public:
  explicit CountingCompiler(bool always_vary = false) : always_vary_(always_vary) {}
  const Target& target() const override { return inner_->target(); }
  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes sizes) override {
    asked = sizes;
    std::vector<Result> results = inner_->compile(kernels, always_vary_ ? Sizes::Vary : sizes);
    this->kernels += static_cast<int>(kernels.size());
    for (const Result& result : results) generated += result.generated;
    return results;
  }
  Result load(const Kernel& kernel, std::string_view stored) override {
    return inner_->load(kernel, stored);
  }

  Sizes asked = Sizes::Fixed;
  int generated = 0;
  int kernels = 0;

 private:
  const bool always_vary_;
  std::shared_ptr<KernelCompiler> inner_ = backends::llvm_cpu::make_cpu_compiler();
};

ir::Graph graph_of(int64_t rows, int64_t columns) {
  std::string text = R"(graph g(%x: f32[N, M] user_input 0, %b: f32[M] user_input 1) {
    %s: f32[N, M] = aten.add.Tensor(%x, %b, alpha=1)
    %e: f32[N, M] = aten.tanh(%s)
    %m: f32[N, 1] = aten.mean.dim(%e, [1], true, dtype=none)
    %d: f32[N, M] = aten.sub.Tensor(%e, %m, alpha=1)
    %c: f32[M] = aten.sum.dim_IntList(%d, [0], false, dtype=none)
    return %d: output 0, %c: output 1
  })";
  for (const auto& [letter, size] : {std::pair{'N', rows}, std::pair{'M', columns}}) {
    for (size_t at = text.find(letter); at != std::string::npos; at = text.find(letter))
      text.replace(at, 1, std::to_string(size));
  }
  return ir::parse(text);
}

std::vector<Tensor> run(Executable& executable, int64_t rows, int64_t columns) {
  torch::manual_seed(0);
  std::vector<Tensor> inputs{torch::randn({rows, columns}), torch::randn({columns})};
  return executable.run(inputs);
}

TEST(Sizes, GraphsOfOtherSizesFindTheirCodeWhereSizesVary) {
  const auto compiler = std::make_shared<CountingCompiler>();
  const auto backend = make_backend(compiler, backends::eager::make_backend());
  const CompileContext vary{.sizes_vary = true};
  const auto first = backend->compile(graph_of(40, 100), vary);
  EXPECT_EQ(compiler->asked, Sizes::Vary);
  const int once = compiler->generated;
  EXPECT_GT(once, 0);
  const auto fixed = backend->compile(graph_of(53, 97), {});
  EXPECT_EQ(compiler->asked, Sizes::Fixed);
  EXPECT_EQ(compiler->generated, 2 * once);
  const auto other = backend->compile(graph_of(59, 131), vary);
  const auto judge = backend->compile(graph_of(59, 131), {});
  EXPECT_EQ(compiler->generated, 3 * once) << "the last, which is for its sizes alone";
  const auto got = run(*other, 59, 131), expected = run(*judge, 59, 131);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(test::same_bits(got[i], expected[i])) << i;
}

TEST(Sizes, AStoredGraphIsLoadedWithCodeForOtherSizes) {
  const auto compiler = std::make_shared<CountingCompiler>();
  const auto backend = make_backend(compiler, backends::eager::make_backend());
  const CompileContext vary{.sizes_vary = true};
  auto first = backend->compile(graph_of(41, 103), vary);
  const std::string stored = first->save();
  const auto expected = run(*first, 41, 103);
  first.reset();
  compiler->generated = 0;
  const auto loaded = backend->load(stored, graph_of(41, 103), vary);
  ASSERT_TRUE(loaded);
  const auto got = run(*loaded, 41, 103);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(test::same_bits(got[i], expected[i])) << i;
  const auto other = backend->compile(graph_of(67, 131), vary);
  EXPECT_EQ(compiler->generated, 0);
}

/// One block with attention written out.
struct Block : torch::nn::Module {
  static constexpr int64_t kWidth = 32, kHeads = 4;
  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1);
    const auto parts = qkv(norm1(x)).chunk(3, -1);
    const auto heads = [&](const Tensor& part) {
      return part.view({batch, length, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    Tensor scores = heads(parts[0]).matmul(heads(parts[1]).transpose(-2, -1)) / 2.83;
    const Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    const Tensor mixed =
        torch::softmax(scores.masked_fill(later, -1e9), -1).matmul(heads(parts[2]));
    const Tensor h = x + out(mixed.transpose(1, 2).reshape({batch, length, kWidth}));
    return (h + down(torch::gelu(up(norm2(h)), "tanh"))).pow(2).mean();
  }
  torch::nn::LayerNorm norm1 = torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})),
                       norm2 = torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}));
  torch::nn::Linear qkv = torch::nn::Linear(kWidth, 3 * kWidth),
                    out = torch::nn::Linear(kWidth, kWidth),
                    up = torch::nn::Linear(kWidth, 4 * kWidth),
                    down = torch::nn::Linear(4 * kWidth, kWidth);
};

TEST(Sizes, ATransformerBlockOfManyShapesHasFewCodes) {
  constexpr int kShapes = 200;
  constexpr int kRuns = 4;
  const auto compiler = std::make_shared<CountingCompiler>(/*always_vary=*/true);
  torch::manual_seed(0);
  Block block;
  Options options;
  options.backend = make_backend(compiler, backends::eager::make_backend());
  options.max_entries = kShapes + 1;
  const auto compiled =
      compile<Tensor(Tensor)>([&](const Tensor& x) { return block.forward(x); }, options);
  std::mt19937_64 random(1);
  int most_kernels = 0;
  for (int i = 0; i < kShapes; ++i) {
    const auto batch = static_cast<int64_t>(1 + random() % 64);
    const auto length = static_cast<int64_t>(8 + random() % 504);
    const Tensor x = torch::randn({batch, length, Block::kWidth}).requires_grad_();
    compiler->kernels = 0;
    compiled.prepare(x);
    most_kernels = std::max(most_kernels, compiler->kernels);
    if (i % (kShapes / kRuns) != 0) continue;
    const auto gradient = [&](const Tensor& loss) { return torch::autograd::grad({loss}, {x})[0]; };
    const Tensor expected = block.forward(x), got = compiled(x);
    EXPECT_TRUE(at::allclose(got, expected, 1e-4)) << batch << " x " << length;
    EXPECT_TRUE(at::allclose(gradient(got), gradient(expected), 1e-3, 1e-7))
        << batch << " x " << length;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0);
  EXPECT_LE(compiler->generated, 3 * most_kernels);
}

}  // namespace
}  // namespace tandem::loops
