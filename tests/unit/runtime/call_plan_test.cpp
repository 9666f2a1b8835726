#include "runtime/call/call_plan.h"

#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::runtime {
namespace {

/// A split around a forward graph; `written` are inputs whose data the call writes.
Split split_of(const char* forward, std::vector<size_t> written = {}) {
  Split split;
  split.forward = ir::parse(forward);
  split.signature.inputs.resize(split.forward.inputs().size());
  for (const ir::Output& output : split.forward.outputs()) {
    if (output.role.role == ir::Role::Output) split.signature.outputs.emplace_back();
  }
  for (size_t input : written) split.signature.inputs[input].data_written = true;
  return split;
}

/// The actions as text; of a plan whose list begins with copies, those first.
std::vector<std::string> texts(const CallPlan& plan) {
  std::vector<std::string> texts;
  for (const Action& action : plan.actions) texts.push_back(to_string(action));
  return texts;
}
using Texts = std::vector<std::string>;

TEST(CallPlan, SavedInputsTravelByReferenceAndIntermediatesByValue) {
  const CallPlan plan = make_call_plan(split_of(R"(
    graph g(%x: f32[4] user_input 0) {
      %s: f32[4] = aten.sin(%x)
      %y: f32[4] = aten.exp(%s)
      return %y: output 0, %x: saved 0, %s: saved 1
    })"));
  ASSERT_EQ(plan.saved.size(), 2u);
  EXPECT_EQ(plan.saved[0].input, 0);
  EXPECT_EQ(plan.saved[1].input, -1);
  EXPECT_EQ(plan.saved[1].output, -1);
  EXPECT_EQ(plan.first_saved, 1);
}

// The caller may write to the result: the backward must notice, also through a view.
TEST(CallPlan, SavedMemoryOfAResultIsWatched) {
  const CallPlan plan = make_call_plan(split_of(R"(
    graph g(%x: f32[2, 2] user_input 0) {
      %s: f32[2, 2] = aten.exp(%x)
      %y: f32[4] = aten.view(%s, [4])
      return %y: output 0, %s: saved 0
    })"));
  EXPECT_EQ(plan.saved[0].output, 0);
}

TEST(CallPlan, MemoryThatBelongsToSomebodyElseIsCopied) {
  const CallPlan plan = make_call_plan(split_of(R"(
    graph g(%x: f32[2] user_input 0) {
      %c: f32[2] = constant {1.0, 2.0}
      %v: f32[2, 1] = aten.unsqueeze(%x, 1)
      %y: f32[2] = aten.exp(%x)
      return %c: output 0, %v: output 1, %y: output 2, %y: output 3
    })"));
  EXPECT_EQ(texts(plan), (Texts{"copy output: 0",  // a constant of the graph
                                "copy output: 1",  // the argument's memory
                                "copy output: 3",  // the memory of result 2
                                "take output 0: 0", "take output 1: 1", "take output 2: 2",
                                "take output 3: 3"}));
}

TEST(CallPlan, WhatAWriteBackWouldOverwriteIsCopiedFirst) {
  const CallPlan plan = make_call_plan(split_of(R"(
    graph g(%a: f32[2] user_input 0, %b: f32[2] user_input 1) {
      %v: f32[2] = aten.alias(%a)
      %n: f32[2] = aten.exp(%b)
      return %n: mutated 0, %v: mutated 1, %a: saved 0
    })",
                                                {0, 1}));
  EXPECT_EQ(texts(plan),
            (Texts{"copy output: 1", "copy output: 2", "write input 0: 0", "write input 1: 1"}));
  EXPECT_TRUE(plan.saved[0].copy);
  EXPECT_EQ(plan.saved[0].input, -1);
}

}  // namespace
}  // namespace tandem::runtime
