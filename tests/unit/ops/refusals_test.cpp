#include "ops/metadata/refusals.h"

#include "ops/metadata/meta_tensor.h"
#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace tandem::ops {
namespace {

/// What the propagator raises for a call; empty if it answers.
std::string raised(const std::string& name, Arguments args, bool must_run = true) {
  MetadataPropagator propagator;
  const c10::OperatorHandle op = find_op(name);
  try {
    propagator.propagate(op, with_defaults(op, std::move(args)), meta_of, must_run);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(Refusals, ADtypeThatTheKernelDoesNotKnowRaises) {
  const at::Tensor mask = at::ones({3}, at::kBool), row = at::ones({1, 3}, at::kBFloat16);
  const char* const text = "\"threshold_cpu\" not implemented for 'Bool'";
  EXPECT_NE(raised("threshold", {mask, 0.5, 1.0}).find(text), std::string::npos);
  EXPECT_NE(raised("threshold", {mask, 0.5, 1.0}).find(text), std::string::npos) << "only once";
  EXPECT_NE(raised("_cdist_forward", {row, row, 2.0, c10::IValue()}).find("not implemented for"),
            std::string::npos);
}

TEST(Refusals, ADtypeThatTheKernelKnowsDoesNot) {
  const at::Tensor half = at::ones({3}, at::kHalf), mask = at::ones({3}, at::kBool);
  EXPECT_EQ(raised("mul.Tensor", {half, half}), "");
  EXPECT_EQ(raised("logical_not", {mask}), "");
}

TEST(Refusals, ANumberThatDoesNotFitRaisesWhereTheKernelRefusesIt) {
  const at::Tensor counts = at::ones({3}, at::kLong), mask = at::ones({3}, at::kBool);
  const double infinity = std::numeric_limits<double>::infinity();
  const char* const text = "value cannot be converted to type int64_t without overflow";
  EXPECT_EQ(raised("masked_fill.Scalar", {counts, mask, infinity}), text);
  EXPECT_EQ(raised("masked_fill.Scalar", {counts, mask, 3}), "");
  // A float takes an infinity.
  EXPECT_EQ(raised("masked_fill.Scalar", {at::ones({3}), mask, infinity}), "");
}

// Metadata of a backward is asked for, too: what its kernels refuse, they refuse in the backward.
TEST(Refusals, OnlyWhatMustRunIsTried) {
  EXPECT_EQ(raised("threshold", {at::ones({3}, at::kBool), 0.5, 1.0}, /*must_run=*/false), "");
}

TEST(Refusals, MemoryThatEmptyOperandsLackRaises) {
  const at::Tensor index = at::zeros({1}, at::kLong);
  EXPECT_NE(raised("index_fill.int_Scalar", {at::ones({0}), 0, index, 1.0})
                .find("are out of bounds for storage of size 0"),
            std::string::npos);
  EXPECT_EQ(raised("index_fill.int_Scalar", {at::ones({1}), 0, index, 1.0}), "");
}

// The draws of the function must not move.
TEST(Refusals, RandomOpsAreNotTried) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_EQ(raised("bernoulli.p", {at::ones({3}, at::kHalf), 0.5, c10::IValue()}), "");
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
}

}  // namespace
}  // namespace tandem::ops
