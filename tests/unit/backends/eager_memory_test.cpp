#include "backends/eager/program.h"
#include "tandem/backend.h"
#include "tandem/ir/text.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

namespace tandem {
namespace {

using at::Tensor;

/// Counts the bytes that tensors hold while it lives.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, /*priority=*/100);
  }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, /*priority=*/100); }

  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{inner_->allocate(bytes), bytes};
    live_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    return {block->memory.get(), block, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static int64_t live_bytes() { return live_; }
  static int64_t peak_bytes() { return peak_; }
  static void start() { peak_ = live_; }

 private:
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    live_ -= static_cast<int64_t>(block->bytes);
    delete block;
  }
  c10::Allocator* inner_;
  static inline int64_t live_ = 0, peak_ = 0;
};

constexpr int64_t kBytes = 1024 * 4;  // of the tensors below

struct Measured {
  std::vector<Tensor> results;
  int64_t peak = 0;  // tensors of kBytes above the start
};

Measured measure(const char* text, std::vector<Tensor> inputs,
                 const std::vector<bool>& releasable = {}) {
  std::unique_ptr<Executable> executable =
      backend("eager")->compile(ir::parse(text), {.releasable_inputs = releasable});
  CountingAllocator::start();
  const int64_t before = CountingAllocator::live_bytes();
  Measured measured{executable->run(inputs)};
  measured.peak = (CountingAllocator::peak_bytes() - before) / kBytes;
  return measured;
}

class EagerMemory : public ::testing::Test {
 protected:
  CountingAllocator allocator_;
  Tensor x_ = torch::rand({1024});
};

// `cumsum` is no pointwise op, so nothing is overwritten: old and new are alive, nothing older.
TEST_F(EagerMemory, FreesIntermediatesAtTheirLastUse) {
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0) {
      %a: f32[1024] = aten.cumsum(%x, 0, dtype=none)
      %b: f32[1024] = aten.cumsum(%a, 0, dtype=none)
      %c: f32[1024] = aten.cumsum(%b, 0, dtype=none)
      %d: f32[1024] = aten.cumsum(%c, 0, dtype=none)
      return %d: output 0
    })",
                              {x_});

  EXPECT_EQ(measured.peak, 2);
  EXPECT_TRUE(measured.results[0].equal(x_.cumsum(0).cumsum(0).cumsum(0).cumsum(0)));
}

TEST_F(EagerMemory, FreesResultsThatNobodyReadsAtOnce) {
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0) {
      %a: f32[1024] = aten.bernoulli.p(%x, 0.5, generator=none)
      %b: f32[1024] = aten.bernoulli.p(%x, 0.5, generator=none)
      %c: f32[1024] = aten.bernoulli.p(%x, 0.5, generator=none)
      return %c: output 0
    })",
                              {x_});

  EXPECT_EQ(measured.peak, 1);
}

TEST_F(EagerMemory, ResetsInputsThatItMayReleaseAtTheirLastUse) {
  constexpr char text[] = R"(
    graph g(%x: f32[1024] saved 0, %y: f32[1024] saved 1, %unread: f32[1024] saved 2) {
      %a: f32[1024] = aten.cumsum(%x, 0, dtype=none)
      %b: f32[1024] = aten.cumsum(%a, 0, dtype=none)
      %c: f32[1024] = aten.mul.Tensor(%y, %b)
      return %c: output 0
    })";
  std::vector<Tensor> inputs = {torch::rand({1024}), torch::rand({1024}), torch::rand({1024})};
  const Tensor kept = inputs[1];
  CompileContext context{.releasable_inputs = {true, false, true}};

  backend("eager")->compile(ir::parse(text), context)->run(inputs);

  EXPECT_FALSE(inputs[0].defined());
  EXPECT_TRUE(inputs[1].is_same(kept));
  EXPECT_FALSE(inputs[2].defined());
}

TEST_F(EagerMemory, LeavesInputsAloneThatItMayNotRelease) {
  std::vector<Tensor> inputs = {x_};
  backend("eager")
      ->compile(ir::parse(R"(
        graph g(%x: f32[1024] user_input 0) {
          %a: f32[1024] = aten.sin(%x)
          return %a: output 0
        })"),
                {})
      ->run(inputs);

  EXPECT_TRUE(inputs[0].is_same(x_));
}

constexpr char kChain[] = R"(
  graph g(%x: f32[1024] user_input 0, %m: f32[1] user_input 1) {
    %a: f32[1024] = aten.sin(%x)
    %b: f32[1024] = aten.mul.Tensor(%a, %m)
    %c: f32[1024] = aten.add.Scalar(%b, 1, 1)
    %d: f32[1024] = aten.exp(%c)
    return %d: output 0
  })";

TEST_F(EagerMemory, OverwritesAnOperandThatDies) {
  const Tensor before = x_.clone(), m = torch::tensor({2.0f});

  Measured measured = measure(kChain, {x_, m});

  EXPECT_EQ(measured.peak, 1);
  EXPECT_TRUE(measured.results[0].equal((before.sin() * m + 1).exp()));
  EXPECT_TRUE(x_.equal(before)) << "an input was overwritten";
  EXPECT_EQ(measured.results[0]._version(), 0);
}

TEST_F(EagerMemory, OverwritesEveryTimeTheProgramRuns) {
  std::unique_ptr<Executable> executable = backend("eager")->compile(ir::parse(kChain), {});
  std::vector<Tensor> inputs = {x_, torch::tensor({2.0f})};

  EXPECT_TRUE(executable->run(inputs)[0].equal(executable->run(inputs)[0]));
}

// One result each: what is read again must survive, whether by a node or by the caller.
TEST_F(EagerMemory, KeepsWhatIsStillNeeded) {
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0) {
      %a: f32[1024] = aten.sin(%x)
      %b: f32[1024] = aten.exp(%a)
      %c: f32[1024] = aten.mul.Tensor(%b, %a)
      %d: f32[1024] = aten.neg(%c)
      return %c: output 0, %d: saved 0
    })",
                              {x_});

  EXPECT_TRUE(measured.results[0].equal(x_.sin().exp() * x_.sin()));
  EXPECT_TRUE(measured.results[1].equal(-(x_.sin().exp() * x_.sin())));
}

TEST_F(EagerMemory, KeepsAnOperandThatIsMentionedTwice) {
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0) {
      %a: f32[1024] = aten.sin(%x)
      %b: f32[1024] = aten.mul.Tensor(%a, %a)
      return %b: output 0
    })",
                              {x_});

  EXPECT_EQ(measured.peak, 2);
}

// The view dies later than the value that it looks into.
TEST_F(EagerMemory, KeepsMemoryThatAViewLooksInto) {
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0) {
      %a: f32[1024] = aten.sin(%x)
      %view: f32[32, 32] = aten.view(%a, [32, 32])
      %b: f32[1024] = aten.neg(%a)
      %c: f32[32, 32] = aten.exp(%view)
      return %b: output 0, %c: output 1
    })",
                              {x_});

  EXPECT_TRUE(measured.results[0].equal(-x_.sin()));
  EXPECT_TRUE(measured.results[1].equal(x_.sin().exp().view({32, 32})));
}

TEST_F(EagerMemory, KeepsMemoryThatAnotherOperandLooksInto) {
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0) {
      %a: f32[1024] = aten.sin(%x)
      %flipped: f32[1024] = aten.as_strided(%a, [1024], [1], 0)
      %head: f32[1] = aten.slice.Tensor(%flipped, 0, 1, 2, 1)
      %b: f32[1024] = aten.add.Tensor(%a, %head, alpha=1)
      return %b: output 0
    })",
                              {x_});

  EXPECT_TRUE(measured.results[0].equal(x_.sin() + x_.sin().slice(0, 1, 2)));
}

TEST_F(EagerMemory, KeepsAnOperandOfAnotherType) {
  const Tensor m = torch::tensor({2.0f});
  Measured measured = measure(R"(
    graph g(%x: f32[1024] user_input 0, %m: f32[1] user_input 1) {
      %a: f32[1] = aten.neg(%m)
      %wider: f32[1024] = aten.mul.Tensor(%a, %x)
      %b: f32[1024] = aten.sin(%x)
      %other_dtype: bool[1024] = aten.gt.Scalar(%b, 0)
      return %wider: output 0, %other_dtype: output 1
    })",
                              {x_, m});

  EXPECT_TRUE(measured.results[0].equal(-m * x_));
  EXPECT_EQ(measured.results[1].scalar_type(), at::kBool);
  EXPECT_TRUE(measured.results[1].equal(x_.sin() > 0));
}

TEST_F(EagerMemory, NeverOverwritesAConstant) {
  constexpr char text[] = R"(
    graph g() {
      %c: f32[2] = constant {1.0, 2.0}
      %d: f32[2] = aten.neg(%c)
      return %d: output 0
    })";
  std::unique_ptr<Executable> executable = backend("eager")->compile(ir::parse(text), {});
  std::vector<Tensor> none;

  executable->run(none);

  EXPECT_TRUE(executable->run(none)[0].equal(torch::tensor({-1.0f, -2.0f})));
}

TEST(MayOverwrite, AsksWhetherAnybodyElseSeesTheMemory) {
  using backends::eager::may_overwrite;
  Tensor alone = torch::ones({4});
  EXPECT_TRUE(may_overwrite(alone));
  EXPECT_FALSE(may_overwrite(Tensor()));
  {
    const Tensor second_handle = alone;
    EXPECT_FALSE(may_overwrite(alone));
  }
  {
    const Tensor view = alone.view({2, 2});
    EXPECT_FALSE(may_overwrite(alone));
  }
  EXPECT_TRUE(may_overwrite(alone));

  // Memory of the user.
  float numbers[4] = {};
  EXPECT_FALSE(may_overwrite(torch::from_blob(numbers, {4})));
  // Lazy bits: the numbers in memory are not those that the tensor has.
  EXPECT_FALSE(may_overwrite(at::_conj(torch::ones({4}, at::kComplexFloat))));
  EXPECT_FALSE(may_overwrite(at::_efficientzerotensor({4}, at::TensorOptions())));
}

}  // namespace
}  // namespace tandem
