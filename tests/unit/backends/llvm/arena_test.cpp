#include "loops/host/run_state.h"
#include "loops/target/host_target.h"
#include "tandem/backend.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <utility>

namespace tandem::loops {
namespace {

TEST(ArenaPool, ABlockServesWhoeverNeedsNoMore) {
  const HostTarget host;
  ArenaPool pool(host, at::kCPU);
  ArenaPool::Block first = pool.take(1000);
  const void* memory = first.memory.get();
  pool.give_back(std::move(first));
  ArenaPool::Block again = pool.take(500);
  EXPECT_EQ(again.memory.get(), memory);
  EXPECT_EQ(again.bytes, 1000U);
  // Two at a time are two blocks.
  ArenaPool::Block other = pool.take(500);
  EXPECT_NE(other.memory.get(), memory);
  pool.give_back(std::move(again));
  pool.give_back(std::move(other));
  EXPECT_EQ(pool.take(400).bytes, 500U);  // the smaller of the two
}

TEST(ArenaPool, ALargerBlockTakesThePlaceOfASmallerOne) {
  const HostTarget host;
  ArenaPool pool(host, at::kCPU);
  pool.give_back(pool.take(1000));
  pool.give_back(pool.take(4000));
  EXPECT_EQ(pool.take(1000).bytes, 4000U);  // the first one is gone
}

TEST(ArenaPool, GraphsOnOneDeviceShareTheirBlocks) {
  const HostTarget host, other;
  const std::shared_ptr<ArenaPool> pool = ArenaPool::of(host, at::kCPU);
  EXPECT_EQ(ArenaPool::of(host, at::kCPU), pool);
  EXPECT_NE(ArenaPool::of(other, at::kCPU), pool);
  EXPECT_NE(ArenaPool::of(host, at::Device(at::kCPU, 0)), pool);
  pool->clear();
}

// A device whose allocator keeps blocks itself, in the order of its streams.
TEST(ArenaPool, KeepsNothingThatTheAllocatorKeeps) {
  HostTarget host;
  host.keeps_arenas = false;
  ArenaPool pool(host, at::kCPU);
  pool.give_back(pool.take(1000));
  EXPECT_EQ(pool.take(400).bytes, 400U);
}

/// Keeps an intermediate between a kernel and a product.
constexpr const char* kGraph = R"(
  graph g(%x: f32[16, 16] user_input 0) {
    %e: f32[16, 16] = aten.exp(%x)
    %p: f32[16, 16] = aten.mm(%e, %x)
    %s: f32[16, 16] = aten.sin(%p)
    return %s: output 0
  })";

// The second graph finds its tensors where the first one's were, and the first one again after it.
TEST(ArenaPool, GraphsThatTakeTurnsKeepTheirResultsApart) {
  const ir::Graph graph = ir::parse(kGraph);
  const auto a = backend("llvm")->compile(graph, {});
  const auto b = backend("llvm")->compile(graph, {});
  for (int round = 0; round < 3; ++round) {
    const at::Tensor x = torch::randn({16, 16}), y = torch::randn({16, 16});
    std::vector<at::Tensor> first = {x}, second = {y};
    const at::Tensor of_a = a->run(first)[0], of_b = b->run(second)[0];
    EXPECT_TRUE(at::allclose(of_a, at::mm(x.exp(), x).sin(), 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(of_b, at::mm(y.exp(), y).sin(), 1e-4, 1e-5));
    if (round == 1) a->release_cached_memory();
  }
}

}  // namespace
}  // namespace tandem::loops
