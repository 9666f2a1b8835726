#include "partition/finish_split.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::partition {
namespace {

/// A split around a forward; the listed inputs are written by the call, below autograd.
Split split_of(const char* forward, const std::vector<size_t>& written = {}) {
  Split split;
  split.forward = ir::parse(forward);
  for (ir::ValueId input : split.forward.inputs())
    split.signature.inputs.push_back({.role = split.forward.input_role(input),
                                      .type = split.forward.value(input).tensor_type()});
  for (size_t i : written) split.signature.inputs[i].data_written = true;
  return split;
}

Split finished(const char* forward, const std::vector<size_t>& written = {},
               Mutations mutations = Mutations::in_graph) {
  Split split = split_of(forward, written);
  finish_split(split, mutations);
  ir::verify(split.forward, "test");
  // Once is enough.
  const std::string text = ir::print(split.forward);
  finish_split(split, Mutations::epilogue);
  EXPECT_EQ(ir::print(split.forward), text);
  return split;
}

ir::Graph placed(const char* text, const std::vector<size_t>& written) {
  return finished(text, written).forward;
}

TEST(FinishSplit, TakesThePlaceOfTheOutputAndComesLast) {
  EXPECT_GRAPH_EQ(placed(R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %new: f32[4] = aten.neg(%x)
      %y: f32[4] = aten.exp(%new)
      return %new: mutated 0, %y: output 0
    })",
                         {0}),
                  R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %new: f32[4] = aten.neg(%x)
      %y: f32[4] = aten.exp(%new)
      %w: f32[4] = aten.copy_(%x, %new, false)
      return %y: output 0
    })");
}

// A view of the input as a saved value shows the old data: the backward must not see the new.
TEST(FinishSplit, CopiesWhatStillShowsTheOldData) {
  EXPECT_GRAPH_EQ(placed(R"(
    graph g.forward(%x: f32[2, 3] user_input 0) {
      %old: f32[3, 2] (1, 3) = aten.t(%x)
      %new: f32[2, 3] = aten.neg(%x)
      return %new: mutated 0, %old: saved 0
    })",
                         {0}),
                  R"(
    graph g.forward(%x: f32[2, 3] user_input 0) {
      %old: f32[3, 2] (1, 3) = aten.t(%x)
      %new: f32[2, 3] = aten.neg(%x)
      %kept: f32[3, 2] (1, 3) = aten.clone(%old, memory_format=none)
      %w: f32[2, 3] = aten.copy_(%x, %new, false)
      return %kept: saved 0
    })");
}

// Two inputs that change places: each new value lies in the other's memory.
TEST(FinishSplit, CopiesNewDataThatAnotherWriteWouldOverwrite) {
  EXPECT_GRAPH_EQ(placed(R"(
    graph g.forward(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      return %y: mutated 0, %x: mutated 1
    })",
                         {0, 1}),
                  R"(
    graph g.forward(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      %a: f32[4] = aten.clone(%y, memory_format=none)
      %b: f32[4] = aten.clone(%x, memory_format=none)
      %c: f32[4] = aten.copy_(%x, %a, false)
      %d: f32[4] = aten.copy_(%y, %b, false)
      return
    })");
}

TEST(FinishSplit, SavesTheInputWhereTheBackwardReadsItsNewData) {
  EXPECT_GRAPH_EQ(placed(R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %new: f32[4] = aten.sigmoid(%x)
      return %new: mutated 0, %new: saved 0
    })",
                         {0}),
                  R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %new: f32[4] = aten.sigmoid(%x)
      %w: f32[4] = aten.copy_(%x, %new, false)
      return %w: saved 0
    })");
}

TEST(FinishSplit, LeavesRewrittenInputsToTheCallPath) {
  constexpr char text[] = R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %new: f32[4] = aten.neg(%x)
      return %new: mutated 0
    })";
  Split split = split_of(text, {0});
  const auto expect_left = [&] {
    EXPECT_FALSE(writes_in_graph(split.signature, 0));
    finish_split(split, Mutations::in_graph);
    EXPECT_GRAPH_EQ(split.forward, text);
  };
  ir::InputFacts& facts = split.signature.inputs[0];
  EXPECT_TRUE(writes_in_graph(split.signature, 0));
  facts.history_changed = true;
  expect_left();
  facts.history_changed = false;
  facts.metadata_changed = true;
  expect_left();
  facts.metadata_changed = false;
  facts.group = 0;
  expect_left();
}

// ---- how values are saved ----

using As = Saved::As;
using How = Saved::How;

TEST(FinishSplit, SavesInputsByReferenceAndIntermediatesAsTheyAre) {
  const Split split = finished(R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %s: f32[4] = aten.sin(%x)
      %y: f32[4] = aten.exp(%s)
      return %y: output 0, %x: saved 0, %s: saved 1
    })");
  ASSERT_EQ(split.saved.size(), 2u);
  EXPECT_EQ(split.saved[0].how, (How{As::Input, 0}));
  EXPECT_EQ(split.saved[1].how, (How{As::Value}));
}

// The caller may write to the result: the backward must notice, also through a view.
TEST(FinishSplit, WatchesSavedMemoryOfAResult) {
  const Split split = finished(R"(
    graph g.forward(%x: f32[2, 2] user_input 0) {
      %s: f32[2, 2] = aten.exp(%x)
      %y: f32[4] = aten.view(%s, [4])
      return %y: output 0, %s: saved 0
    })");
  EXPECT_EQ(split.saved[0].how, (How{As::Result, 0}));
}

TEST(FinishSplit, SavesAnInputThatIsReshapedAsItWasFound) {
  Split split = split_of(R"(
    graph g.forward(%x: f32[2, 2] user_input 0) {
      %y: f32[2, 2] = aten.exp(%x)
      return %y: output 0, %x: saved 0
    })");
  split.signature.inputs[0].metadata_changed = true;
  finish_split(split, Mutations::in_graph);
  EXPECT_EQ(split.saved[0].how, (How{As::InputAsFound, 0}));
}

// New data in another shape is no other name of the input, but a write to the input shows in it.
TEST(FinishSplit, WatchesTheInputWhoseNewDataIsSavedInAnotherShape) {
  const Split split = finished(R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %e: f32[2, 2] = aten.exp(%x)
      %new: f32[4] = aten.view(%e, [4])
      return %new: mutated 0, %new: saved 0, %e: saved 1
    })",
                               {0}, Mutations::epilogue);
  EXPECT_EQ(split.saved[0].how, (How{As::WrittenInput, 0}));
  EXPECT_EQ(split.saved[1].how, (How{As::DataOfInput, 0}));
}

// Eager keeps the source of the write, which is another tensor.
TEST(FinishSplit, SavesTheInputThatIsWrittenIntoAnotherOneByReference) {
  const Split split = finished(R"(
    graph g.forward(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      return %y: mutated 0, %y: saved 0
    })",
                               {0}, Mutations::epilogue);
  EXPECT_EQ(split.saved[0].how, (How{As::Input, 1}));
}

// ---- memory that belongs to somebody else ----

TEST(FinishSplit, ReturnsNoMemoryOfSomebodyElse) {
  EXPECT_GRAPH_EQ(finished(R"(
    graph g.forward(%x: f32[2] user_input 0) {
      %c: f32[2] = constant {1.0, 2.0}
      %v: f32[2, 1] = aten.unsqueeze(%x, 1)
      %y: f32[2] = aten.exp(%x)
      return %c: output 0, %v: output 1, %y: output 2, %y: output 3
    })")
                      .forward,
                  R"(
    graph g.forward(%x: f32[2] user_input 0) {
      %c: f32[2] = constant {1.0, 2.0}
      %v: f32[2, 1] = aten.unsqueeze(%x, 1)
      %y: f32[2] = aten.exp(%x)
      %mine: f32[2] = aten.clone(%c, memory_format=none)
      %arguments: f32[2, 1] = aten.clone(%v, memory_format=none)
      %second: f32[2] = aten.clone(%y, memory_format=none)
      return %mine: output 0, %arguments: output 1, %y: output 2, %second: output 3
    })");
}

TEST(FinishSplit, CopiesWhatTheCallPathWouldOverwrite) {
  const Split split = finished(R"(
    graph g.forward(%a: f32[2] user_input 0, %b: f32[2] user_input 1) {
      %v: f32[2] = aten.alias(%a)
      %n: f32[2] = aten.exp(%b)
      return %n: mutated 0, %v: mutated 1, %a: saved 0
    })",
                               {0, 1}, Mutations::epilogue);
  EXPECT_GRAPH_EQ(split.forward, R"(
    graph g.forward(%a: f32[2] user_input 0, %b: f32[2] user_input 1) {
      %v: f32[2] = aten.alias(%a)
      %n: f32[2] = aten.exp(%b)
      %w: f32[2] = aten.clone(%v, memory_format=none)
      %old: f32[2] = aten.clone(%a, memory_format=none)
      return %n: mutated 0, %w: mutated 1, %old: saved 0
    })");
  EXPECT_EQ(split.saved[0].how, (How{As::Copy}));
  EXPECT_EQ(split.saved[0].bytes, 8);
}

// One copy is enough, and the caller can write to it.
TEST(FinishSplit, ASavedValueSharesTheCopyThatAResultGets) {
  const Split split = finished(R"(
    graph g.forward(%x: f32[2] user_input 0) {
      %n: f32[2] = aten.exp(%x)
      return %n: mutated 0, %x: output 0, %x: saved 0
    })",
                               {0});
  EXPECT_GRAPH_EQ(split.forward, R"(
    graph g.forward(%x: f32[2] user_input 0) {
      %n: f32[2] = aten.exp(%x)
      %old: f32[2] = aten.clone(%x, memory_format=none)
      %w: f32[2] = aten.copy_(%x, %n, false)
      return %old: output 0, %old: saved 0
    })");
  EXPECT_EQ(split.saved[0].how, (How{As::Result, 0}));
}

}  // namespace
}  // namespace tandem::partition
