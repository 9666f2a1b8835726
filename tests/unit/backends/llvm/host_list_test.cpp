#include "loops/host/host_list.h"

#include "backends/eager/eager_backend.h"
#include "loops/host/kernel_backend.h"
#include "loops/host/memory_plan.h"
#include "support/error_text.h"
#include "tandem/backend.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace tandem::loops {
namespace {

using at::Tensor;

constexpr const char* kLookup = R"(
  graph g(%w: f32[5, 8] user_input 0, %i: i64[3] user_input 1) {
    %e: f32[3, 8] = aten.embedding(%w, %i)
    %y: f32[3, 8] = aten.exp(%e)
    return %y: output 0
  })";

TEST(MemoryPlan, WhatLivesAtTheSameTimeDoesNotOverlap) {
  const std::vector<MemoryNeed> needs = {
      {100, 0, 2}, {300, 1, 1}, {64, 2, 5}, {1000, 4, 6}, {8, 0, 6}};

  const MemoryPlan plan = plan_memory(needs, 64);

  for (size_t i = 0; i < needs.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % 64, 0);
    EXPECT_LE(plan.offsets[i] + needs[i].bytes, plan.bytes);
    for (size_t j = 0; j < i; ++j) {
      if (needs[i].end < needs[j].begin || needs[j].end < needs[i].begin) continue;
      EXPECT_TRUE(plan.offsets[i] + needs[i].bytes <= plan.offsets[j] ||
                  plan.offsets[j] + needs[j].bytes <= plan.offsets[i])
          << i << " and " << j;
    }
  }
  EXPECT_LE(plan.bytes, 1000 + 64 + 64 + 64);  // the largest moment, rounded to lines
}

TEST(LlvmBackend, AnIndexOutOfRangeRaisesEagersError) {
  for (const auto& engine :
       {make_backend(make_reference_compiler(), backends::eager::make_backend()),
        backend("llvm")}) {
    const auto compiled = engine->compile(ir::parse(kLookup), {});
    const Tensor table = torch::randn({5, 8});
    std::vector<Tensor> bad = {table, torch::tensor({0, 5, 1})};
    std::string expected;
    try {
      at::embedding(table, bad[1]);
    } catch (const c10::Error& error) {
      expected = error.what_without_backtrace();
    }
    ASSERT_FALSE(expected.empty());
    try {
      compiled->run(bad);
      FAIL() << "no error";
    } catch (const c10::Error& error) {
      EXPECT_EQ(error.what_without_backtrace(), expected);
    } catch (const std::exception& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
    }
    std::vector<Tensor> good = {table, torch::tensor({0, 4, 1})};
    EXPECT_TRUE(at::allclose(compiled->run(good)[0], at::embedding(table, good[1]).exp()));
  }
}

// An input that is laid out otherwise, or negated lazily, is copied for kernels, and only for them.
TEST(LlvmBackend, AWriteReachesAnInputThatKernelsReadACopyOf) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 3] user_input 0) {
      %y: f32[4, 3] = aten.exp(%x)
      %w: f32[4, 3] = aten.copy_(%x, %y, false)
      %z: f32[4, 3] = aten.neg(%x)
      return %w: output 0, %z: output 1
    })");
  const auto compiled = backend("llvm")->compile(graph, {});
  for (const bool negated : {false, true}) {
    const Tensor memory = torch::randn({3, 4}), x = negated ? memory._neg_view().t() : memory.t();
    const Tensor expected = x.exp();
    std::vector<Tensor> inputs = {x};

    const std::vector<Tensor> results = compiled->run(inputs);

    EXPECT_TRUE(at::allclose(x, expected));
    EXPECT_TRUE(results[0].is_same(x));
    EXPECT_TRUE(at::allclose(results[1], -expected)) << "read after the write";
  }
}

/// Compiles nothing.
class Refusing final : public KernelCompiler {
 public:
  const Target& target() const override { return make_reference_compiler()->target(); }
  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes) override {
    return std::vector<Result>(kernels.size(), {nullptr, "not today"});
  }
};

TEST(LlvmBackend, WhatCannotBeGeneratedRunsInEagerAndIsReported) {
  const auto compiled = make_backend(std::make_shared<Refusing>(), backends::eager::make_backend())
                            ->compile(ir::parse(kLookup), {});
  std::vector<Tensor> inputs = {torch::randn({5, 8}), torch::tensor({0, 4, 1})};

  EXPECT_TRUE(compiled->run(inputs)[0].equal(at::embedding(inputs[0], inputs[1]).exp()));
  EXPECT_NE(compiled->report().find("in eager: embedding, exp: not today"), std::string::npos)
      << compiled->report();
}

// What is made of nothing has an operand for its sizes, which is there only after the kernel.
TEST(LlvmBackend, ANumberOfTheShapeOfAKernelsOwnValueRunsInEager) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[3] user_input 0) {
      %m: f32[3] = aten.neg(%x)
      %e: f32[3] = aten.empty_like(%m)
      %f: f32[3] = aten.fill.Scalar(%e, 2.0)
      %s: f32[3] = aten.sub.Tensor(%f, %m, alpha=1)
      return %s: output 0
    })");
  const std::shared_ptr<Backend> refusing =
      make_backend(std::make_shared<Refusing>(), backends::eager::make_backend());
  const Tensor x = torch::randn({3});
  for (const std::shared_ptr<Backend>& engine : {refusing, backend("llvm")}) {
    std::vector<Tensor> given = {x};
    EXPECT_TRUE(engine->compile(graph, {})->run(given)[0].equal(2.0 + x));
  }
}

/// Kernels whose best run took a microsecond, on a machine that copies 1 GiB a second.
class Timed final : public KernelCompiler {
 public:
  explicit Timed(double seconds) : seconds_(seconds) {}
  const Target& target() const override { return make_reference_compiler()->target(); }
  double copy_bytes_per_second() override { return 1 << 30; }
  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes) override {
    std::vector<Result> results = reference_->compile(kernels);
    for (Result& result : results)
      result.kernel = std::make_shared<TimedKernel>(std::move(result.kernel), seconds_);
    return results;
  }

 private:
  class TimedKernel final : public CompiledKernel {
   public:
    TimedKernel(std::shared_ptr<const CompiledKernel> kernel, double seconds)
        : kernel_(std::move(kernel)), seconds_(seconds) {}
    bool launch(std::span<void* const> buffers, const c10::Stream& stream) const override {
      return kernel_->launch(buffers, stream);
    }
    double best_seconds() const override { return seconds_; }

   private:
    std::shared_ptr<const CompiledKernel> kernel_;
    double seconds_;
  };

  std::shared_ptr<KernelCompiler> reference_ = make_reference_compiler();
  double seconds_;
};

TEST(LlvmBackend, TheReportHasBytesTimeAndShareOfCopyBandwidth) {
  const auto report = [](double seconds) {
    const auto backend =
        make_backend(std::make_shared<Timed>(seconds), backends::eager::make_backend());
    return backend->compile(ir::parse(kLookup), {})->report();
  };
  // A table of 5 rows of 8 floats and 3 indices are read, 3 rows written: 280 bytes.
  EXPECT_NE(report(1e-6).find("k0: reads 184 bytes, writes 96 bytes, 1 us, 26 % of copy bandwidth: "
                              "embedding, exp\n  copy bandwidth: 1 GiB/s"),
            std::string::npos)
      << report(1e-6);
  // Not run yet: nothing to say about its speed.
  EXPECT_NE(report(0).find("writes 96 bytes: embedding, exp"), std::string::npos) << report(0);
}

/// Kernels that are off by one in every element.
class Wrong final : public KernelCompiler {
 public:
  const Target& target() const override { return make_reference_compiler()->target(); }
  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes) override {
    std::vector<Kernel> changed;
    for (const Kernel* kernel : kernels) {
      changed.push_back(*kernel);
      for (Instruction& line : changed.back().body) {
        if (line.op == LoopOp::Exp) line.op = LoopOp::Expm1;
      }
    }
    std::vector<const Kernel*> pointers;
    for (const Kernel& kernel : changed) pointers.push_back(&kernel);
    return make_reference_compiler()->compile(pointers);
  }
};

TEST(LlvmBackend, CheckNamesTheOpThatDiffers) {
  std::vector<Tensor> inputs = {torch::zeros({5, 8}), torch::tensor({0, 4, 1})};
  const auto right = make_backend(make_reference_compiler(), backends::eager::make_backend(), true)
                         ->compile(ir::parse(kLookup), {});
  EXPECT_TRUE(right->run(inputs)[0].equal(torch::ones({3, 8})));

  const auto wrong = make_backend(std::make_shared<Wrong>(), backends::eager::make_backend(), true)
                         ->compile(ir::parse(kLookup), {});
  const std::string text = test::error_text<InternalError>([&] { wrong->run(inputs); });
  EXPECT_NE(text.find("check: kernel k0 differs from eager at element 0 of f32[3, 8]: 0, eager 1"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("aten.exp("), std::string::npos) << text;
}

TEST(LlvmBackend, EqualKernelsAreCompiledOnce) {
  auto judge = backends::eager::make_backend();
  auto compiler = make_reference_compiler();
  const HostList list = make_host_list(ir::parse(R"(
    graph g(%x: f32[6, 6] user_input 0, %w: f32[6, 6] user_input 1) {
      %a: f32[6, 6] = aten.relu(%x)
      %p: f32[6, 6] = aten.mm(%a, %w)
      %b: f32[6, 6] = aten.relu(%p)
      %q: f32[6, 6] = aten.mm(%b, %w)
      return %q: output 0
    })"),
                                       {}, *compiler, *judge);
  EXPECT_EQ(list.kernels.size(), 1u);
  EXPECT_GT(list.arena_bytes, 0);
}

// Each run has a frame of its own; what an earlier run returned stays as it was.
TEST(LlvmBackend, RunsInSeveralThreadsAtOnce) {
  const std::shared_ptr<Executable> compiled = backend("llvm")->compile(ir::parse(R"(
    graph g(%x: f32[64, 64] user_input 0, %w: f32[64, 64] user_input 1) {
      %a: f32[64, 64] = aten.relu(%x)
      %p: f32[64, 64] = aten.mm(%a, %w)
      %b: f32[64, 64] = aten.add.Tensor(%p, %a, alpha=1)
      return %b: output 0
    })"),
                                                                        {});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        std::vector<Tensor> inputs = {torch::full({64, 64}, t + i * 0.5), torch::eye(64)};
        const Tensor first = compiled->run(inputs)[0];
        compiled->run(inputs);
        if (!first.equal(inputs[0] * 2)) ++wrong[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(LlvmBackend, ATensorWithOtherStridesIsCopiedFirst) {
  const auto compiled = backend("llvm")->compile(ir::parse(R"(
    graph g(%x: f32[4, 6] user_input 0) {
      %y: f32[4, 6] = aten.exp(%x)
      return %y: output 0
    })"),
                                                 {});
  std::vector<Tensor> transposed = {torch::randn({6, 4}).t()};
  EXPECT_TRUE(at::allclose(compiled->run(transposed)[0], transposed[0].exp()));
  std::vector<Tensor> expanded = {torch::randn({1, 6}).expand({4, 6})};
  EXPECT_TRUE(at::allclose(compiled->run(expanded)[0], expanded[0].exp()));
}

// A write at the end of the graph comes after every kernel that reads what was there.
TEST(LlvmBackend, KernelsReadAnInputBeforeItIsWritten) {
  const auto compiled = backend("llvm")->compile(ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %n: f32[4] = aten.mul.Scalar(%x, 2)
      %c: f32[4] = aten.copy_(%x, %n, false)
      %y: f32[4] = aten.add.Scalar(%x, 1, 1)
      return %y: output 0
    })"),
                                                 {});
  std::vector<Tensor> inputs = {torch::ones({4})};
  const Tensor x = inputs[0];
  EXPECT_TRUE(compiled->run(inputs)[0].equal(torch::full({4}, 3.0)));
  EXPECT_TRUE(x.equal(torch::full({4}, 2.0)));
}

}  // namespace
}  // namespace tandem::loops
