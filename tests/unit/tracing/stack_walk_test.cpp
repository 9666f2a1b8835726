#include "tracing/lines/stack_walk.h"

#include <alloca.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace tandem::tracing {
namespace {

using Chain = std::vector<uintptr_t>;

/// In the place of the fallback: what a walk that has learnt finds, and what a new one finds, which
/// only asks the unwinder.
struct Both {
  Chain learnt, unwound;
};

struct Walks {
  explicit Walks(const void* outermost) : outermost(outermost), learnt(LoadedObjects::now()) {
    learnt.set_outermost(outermost);
  }
  const void* outermost;
  StackWalk learnt;
};

[[gnu::noinline]] Both take(Walks& walks) {
  const EntryFrame entry{__builtin_frame_address(0), __builtin_return_address(0)};
  std::array<uintptr_t, 64> room;
  Both both;
  size_t count = walks.learnt.take(entry, room);
  both.learnt.assign(room.begin(), room.begin() + count);
  // The walk above has taken what the process had learnt, so this one knows nothing.
  StackWalk fresh(LoadedObjects::now());
  fresh.set_outermost(walks.outermost);
  count = fresh.take(entry, room);
  both.unwound.assign(room.begin(), room.begin() + count);
  return both;
}

void expect_same(const Both& both, size_t least) {
  EXPECT_EQ(both.learnt, both.unwound);
  EXPECT_GE(both.unwound.size(), least);
}

/// Keeps calls from becoming jumps.
void after_call() { asm volatile(""); }

[[gnu::noinline]] Both inner(Walks& walks) {
  Both both = take(walks);
  after_call();
  return both;
}

[[gnu::noinline]] Both recursion(Walks& walks, int depth) {
  Both both = depth == 0 ? inner(walks) : recursion(walks, depth - 1);
  after_call();
  return both;
}

/// Met by one test only; g++ would make it one with the function above if they were the same.
[[gnu::noinline]] Both own_recursion(Walks& walks, int depth) {
  Both both = depth == 0 ? inner(walks) : own_recursion(walks, depth - 1);
  asm volatile("nop");
  return both;
}

/// A frame of another size every time, at the same call.
[[gnu::noinline]] Both with_stack_of(Walks& walks, size_t bytes) {
  auto* memory = static_cast<volatile char*>(alloca(bytes));
  memory[bytes - 1] = 1;
  Both both = inner(walks);
  after_call();
  return both;
}

/// A frame whose size depends on where it begins.
[[gnu::noinline]] Both with_alignment(Walks& walks) {
  alignas(128) char memory[128];
  asm volatile("" : : "r"(memory) : "memory");  // it must exist
  Both both = inner(walks);
  after_call();
  return both;
}

TEST(StackWalk, AWalkByLearntSizesFindsWhatTheUnwinderFinds) {
  Walks walks(__builtin_frame_address(0));
  for (int round = 0; round < 3; ++round) {
    for (int depth : {0, 3, 1, 7})
      expect_same(recursion(walks, depth), static_cast<size_t>(depth) + 2);
    expect_same(inner(walks), 1);
    expect_same(inner(walks), 1);  // another call of the same function
  }
}

TEST(StackWalk, TheUnwinderIsAskedOncePerCallSite) {
  Walks walks(__builtin_frame_address(0));
  int64_t after_first = 0;
  for (int round = 0; round < 5; ++round) {
    recursion(walks, 3);
    if (round == 0) after_first = walks.learnt.unwound();
  }
  EXPECT_GT(after_first, 0);
#if defined(__x86_64__)
  EXPECT_EQ(walks.learnt.unwound(), after_first);
#endif
}

TEST(StackWalk, WhatWasLearntIsKeptForTheNextWalk) {
  int64_t first = 0, second = 0;
  for (int64_t* frames : {&first, &second}) {
    Walks walks(__builtin_frame_address(0));
    // From one place: the first walk finds where they end, by the unwinder in any case.
    for (int depth = 0; depth <= 5; depth += 5) {
      asm volatile("" : "+r"(depth));  // no copy of the loop for each depth
      own_recursion(walks, depth);
    }
    *frames = walks.learnt.unwound();
  }
#if defined(__x86_64__)
  EXPECT_LT(second, first);
#endif
}

TEST(StackWalk, FramesThatChangeTheirSizeAreFoundAllTheSame) {
  Walks walks(__builtin_frame_address(0));
  for (size_t bytes : {16, 4096, 16, 64, 4096, 320, 64}) {
    expect_same(with_stack_of(walks, bytes), 2);
    expect_same(with_alignment(walks), 2);
  }
}

TEST(StackWalk, NothingBeyondTheOutermostFrameIsTaken) {
  Walks walks(__builtin_frame_address(0));
  // inner() alone: this function is the outermost, and Tandem's in the trace.
  EXPECT_EQ(inner(walks).learnt.size(), 1u);
}

TEST(StackWalk, ADeepRecursionEndsTheWalk) {
  Walks walks(__builtin_frame_address(0));
  const Both both = recursion(walks, 2000);
  expect_same(both, 64);
}

}  // namespace
}  // namespace tandem::tracing
