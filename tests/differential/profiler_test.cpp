/// What a profiler sees of a call: one range for the call, one for each kernel that runs.
#include "tandem/tandem.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::test {
namespace {

using at::Tensor;

std::vector<std::string> opened;  // ranges of ours, in order; callbacks are plain functions
int depth = 0;

std::unique_ptr<at::ObserverContext> on_open(const at::RecordFunction& range) {
  if (std::string_view(range.name()).starts_with("tandem::")) {
    opened.push_back(std::string(static_cast<size_t>(depth), ' ') + range.name());
    ++depth;
  }
  return nullptr;
}
void on_close(const at::RecordFunction& range, at::ObserverContext*) {
  if (std::string_view(range.name()).starts_with("tandem::")) --depth;
}

/// Watches the ranges of this thread for a scope.
class Watch {
 public:
  Watch() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(on_open, on_close))) {
    opened.clear();
  }
  ~Watch() { at::removeCallback(handle_); }
  std::vector<std::string> ranges() const { return opened; }

 private:
  at::CallbackHandle handle_;
};

TEST(Profiler, OneRangePerCallAndPerKernel) {
  auto f = tandem::compile([](const Tensor& x) { return x.exp().sum(); });
  const Tensor x = torch::randn({4}).set_requires_grad(true);
  f(x);
  const Watch watch;
  const Tensor y = f(x);
  EXPECT_EQ(watch.ranges(), (std::vector<std::string>{"tandem::call", " tandem::forward"}));
  y.backward();
  EXPECT_EQ(watch.ranges(),
            (std::vector<std::string>{"tandem::call", " tandem::forward", "tandem::backward"}));
  EXPECT_EQ(depth, 0);
}

TEST(Profiler, InferenceHasNoBackward) {
  auto f = tandem::compile([](const Tensor& x) { return x.exp().sum(); });
  const Tensor x = torch::randn({4});
  f(x);
  const Watch watch;
  f(x);
  f(x);
  EXPECT_EQ(watch.ranges(), (std::vector<std::string>{"tandem::call", " tandem::forward",
                                                      "tandem::call", " tandem::forward"}));
}

// An error closes what it opened.
TEST(Profiler, RangesEndWhenAKernelRaises) {
  auto f = tandem::compile(
      [](const Tensor& x, const Tensor& index) { return x.index_select(0, index); });
  const Tensor x = torch::randn({4});
  f(x, torch::tensor({1}));
  const Watch watch;
  EXPECT_ANY_THROW(f(x, torch::tensor({9})));
  EXPECT_EQ(watch.ranges(), (std::vector<std::string>{"tandem::call", " tandem::forward"}));
  EXPECT_EQ(depth, 0);
}

// Without a profiler nobody pays: the same call, and no range.
TEST(Profiler, NobodyWatching) {
  auto f = tandem::compile([](const Tensor& x) { return x.exp().sum(); });
  {
    const Watch watch;
  }
  f(torch::randn({4}));
  f(torch::randn({4}));
  EXPECT_TRUE(opened.empty());
}

}  // namespace
}  // namespace tandem::test
