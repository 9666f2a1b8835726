#include "libtorch/thread_state.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::libtorch {
namespace {

AutocastState bfloat16_on_cpu() { return {.cpu = true, .cuda = false, .cpu_dtype = at::kBFloat16}; }

void change(bool& value) { value = !value; }
void change(int& value) { ++value; }
void change(ThreadState::DispatchKeys& value) { value.excluded ^= 1; }
void change(c10::ScalarType& value) { value = value == at::kDouble ? at::kFloat : at::kDouble; }

TEST(ThreadState, EveryMemberCountsAndIsNamed) {
  const ThreadState now = ThreadState::now();
  EXPECT_EQ(now, ThreadState::now());
  EXPECT_EQ(now.difference(now), std::nullopt);
  size_t members = 0;
  const auto check = [&](const auto& one) {
    ThreadState other = now;
    change(other.*one.member);
    EXPECT_NE(now, other) << one.name;
    EXPECT_EQ(now.difference(other).value_or("").rfind(std::string(one.words) + " is ", 0), 0u)
        << one.name;
    ++members;
  };
  std::apply([&](const auto&... each) { (check(each), ...); }, fields(&now));
  // Does not compile with another number of members.
  [[maybe_unused]] const auto& [grad, inference, keys, deterministic, onednn, dtype, cpu, cuda,
                                cache, flash, math, efficient, threads] = now;
  EXPECT_EQ(members, 13u);
}

TEST(ThreadState, TextsHaveBothValues) {
  ThreadState expected = ThreadState::now(), got = expected;
  expected.grad_mode = true;
  got.grad_mode = false;
  EXPECT_EQ(expected.difference(got), "grad mode is off, compiled with on");
  got = expected;
  expected.default_dtype = at::kFloat;
  got.default_dtype = at::kDouble;
  EXPECT_EQ(expected.difference(got), "default dtype is f64, compiled with f32");
  got = expected;
  expected.threads = 2;
  got.threads = 4;
  EXPECT_EQ(expected.difference(got), "number of threads is 4, compiled with 2");
}

TEST(ThreadState, KnowsTheAutocastOfTheThread) {
  EXPECT_EQ(ThreadState::now().autocast(), AutocastState::now());
  const ThreadStateScope region(ThreadState::now().with_autocast(bfloat16_on_cpu()));
  EXPECT_EQ(AutocastState::now(), bfloat16_on_cpu());
  EXPECT_EQ(ThreadState::now().autocast(), bfloat16_on_cpu());
  EXPECT_FALSE(ThreadState::now().with_autocast({}).autocast().any());
}

TEST(ThreadState, AnotherAutocastLeavesTheRest) {
  const ThreadState now = ThreadState::now();
  ThreadState other = now.with_autocast(bfloat16_on_cpu());
  EXPECT_NE(now.keys, other.keys);
  other.keys = now.keys;
  other.cpu_autocast_dtype = now.cpu_autocast_dtype;
  EXPECT_EQ(now, other);
}

TEST(ThreadState, AScopePutsBackWhatItFound) {
  const ThreadState before = ThreadState::now();
  {
    ThreadState other = before.with_autocast({.cpu = true, .cpu_dtype = at::kHalf});
    other.grad_mode = !before.grad_mode;
    other.autocast_cache = !before.autocast_cache;
    const ThreadStateScope scope(other);
    EXPECT_EQ(ThreadState::now(), other);
  }
  EXPECT_EQ(ThreadState::now(), before);
}

TEST(ThreadState, InferenceModeIsSeen) {
  EXPECT_FALSE(ThreadState::now().inference_mode);
  const c10::InferenceMode mode;
  EXPECT_TRUE(ThreadState::now().inference_mode);
}

}  // namespace
}  // namespace tandem::libtorch
