/// Who asks for `.grad()` of a watched tensor is reported, and nobody else.
#include "libtorch/slot_watch.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

namespace tandem::libtorch {
namespace {

using T = at::Tensor;

std::vector<const c10::AutogradMetaInterface*> reported;

class SlotWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    reported.clear();
    SlotWatch::set_on_access([](const c10::AutogradMetaInterface& metadata, const void*,
                                const void*) { reported.push_back(&metadata); });
  }
  void TearDown() override { SlotWatch::set_on_access(nullptr); }
};

T leaf() { return torch::ones({3}).set_requires_grad(true); }

TEST_F(SlotWatchTest, ReadingAndWritingAreReported) {
  const T x = leaf(), other = leaf();
  {
    const SlotWatch watch(x);
    x.grad();
    x.mutable_grad() = torch::ones({3});
    other.grad();
    EXPECT_EQ(reported, (std::vector{watch.metadata(), watch.metadata()}));
  }
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(reported.size(), 2U) << "it is not watched any more";
}

// Their metadata is of another class.
TEST_F(SlotWatchTest, OfViews) {
  const T x = torch::ones({2, 3})[0].requires_grad_();
  ASSERT_TRUE(x.is_view() && x.is_leaf());
  const SlotWatch watch(x);
  x.grad();
  EXPECT_EQ(reported.size(), 1U);
}

TEST_F(SlotWatchTest, EverythingElseIsAsBefore) {
  const T x = leaf();
  const SlotWatch watch(x);
  (x * x).sum().backward();
  EXPECT_TRUE(noted_gradient(x).equal(2 * x.detach()));
  EXPECT_TRUE(x.requires_grad() && x.is_leaf());
  EXPECT_TRUE(x.view({3, 1}).requires_grad());
}

TEST_F(SlotWatchTest, TheLastOfSeveralWatchesEndsIt) {
  const T x = leaf();
  std::optional<SlotWatch> first(std::in_place, x), second(std::in_place, x);
  first.reset();
  x.grad();
  EXPECT_EQ(reported.size(), 1U);
  second.reset();
  x.grad();
  EXPECT_EQ(reported.size(), 1U);
}

TEST_F(SlotWatchTest, ATensorMayDieMeanwhile) {
  T x = leaf();
  std::optional<SlotWatch> watch(std::in_place, x);
  x.reset();
  watch.reset();
  const T next = leaf();  // likely at the same place
  next.grad();
  EXPECT_TRUE(reported.empty());
}

TEST_F(SlotWatchTest, WithoutMetadataThereIsNothingToWatch) {
  const T x = torch::ones({3});
  const SlotWatch watch(x);
  EXPECT_EQ(watch.metadata(), nullptr);
  x.grad();
  EXPECT_TRUE(reported.empty());
  EXPECT_FALSE(noted_gradient(x).defined());
}

}  // namespace
}  // namespace tandem::libtorch
