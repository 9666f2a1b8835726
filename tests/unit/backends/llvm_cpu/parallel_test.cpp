#include "backends/llvm_cpu/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {
namespace {

class InParallel : public testing::Test {
 protected:
  void SetUp() override {
    before_ = at::get_num_threads();
    at::set_num_threads(2);
  }
  void TearDown() override { at::set_num_threads(before_); }

  std::vector<std::pair<int64_t, int64_t>> pieces(int64_t count, int64_t grain) {
    std::vector<std::pair<int64_t, int64_t>> found;
    std::mutex mutex;
    in_parallel(count, grain, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      found.emplace_back(begin, end);
      threads_.insert(std::this_thread::get_id());
      numbers_.insert(at::get_thread_num());
      nested_ = at::in_parallel_region();
    });
    std::sort(found.begin(), found.end());
    return found;
  }

  std::set<std::thread::id> threads_;
  std::set<int> numbers_;
  bool nested_ = false;

 private:
  int before_ = 1;
};

using Pieces = std::vector<std::pair<int64_t, int64_t>>;

TEST_F(InParallel, SharesTheRangeAmongLibtorchsThreads) {
  EXPECT_EQ(pieces(101, 1), (Pieces{{0, 51}, {51, 101}}));
  EXPECT_EQ(threads_.size(), 2);
  EXPECT_EQ(numbers_, (std::set<int>{0, 1}));
  EXPECT_TRUE(nested_);
}

TEST_F(InParallel, StaysOnOneThreadBelowTheGrain) {
  EXPECT_EQ(pieces(10, 10), (Pieces{{0, 10}}));
  EXPECT_EQ(pieces(0, 1), (Pieces{}));
  at::set_num_threads(1);
  EXPECT_EQ(pieces(100, 1), (Pieces{{0, 100}}));
  EXPECT_EQ(threads_.size(), 1);
}

TEST_F(InParallel, StaysOnOneThreadInsideAParallelRegion) {
  std::atomic<int> calls{0};
  in_parallel(2, 1, [&](int64_t, int64_t) {
    in_parallel(100, 1, [&](int64_t begin, int64_t end) {
      ++calls;
      EXPECT_EQ(end - begin, 100);
    });
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(InParallel, AnErrorArrives) {
  try {
    in_parallel(2, 1, [](int64_t begin, int64_t) {
      if (begin == 1) throw std::runtime_error("piece 1");
    });
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), std::string("piece 1"));
  }
}

}  // namespace
}  // namespace tandem::backends::llvm_cpu
