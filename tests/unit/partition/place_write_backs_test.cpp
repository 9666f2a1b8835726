#include "partition/place_write_backs.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::partition {
namespace {

/// What a call does to the inputs of a graph: the listed ones are written, below autograd.
ir::Signature writes(const ir::Graph& graph, std::vector<size_t> written) {
  ir::Signature signature;
  for (ir::ValueId input : graph.inputs())
    signature.inputs.push_back(
        {.role = graph.input_role(input), .type = graph.value(input).tensor_type()});
  for (size_t i : written) signature.inputs[i].data_written = true;
  return signature;
}

ir::Graph placed(const char* text, std::vector<size_t> written) {
  ir::Graph graph = ir::parse(text);
  const ir::Signature signature = writes(graph, std::move(written));
  place_write_backs(graph, signature);
  ir::verify(graph, "test");
  return graph;
}

TEST(PlaceWriteBacks, TakesThePlaceOfTheOutputAndComesLast) {
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
TEST(PlaceWriteBacks, CopiesWhatStillShowsTheOldData) {
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
TEST(PlaceWriteBacks, CopiesNewDataThatAnotherWriteWouldOverwrite) {
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

TEST(PlaceWriteBacks, SavesTheInputWhereTheBackwardReadsItsNewData) {
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

TEST(PlaceWriteBacks, LeavesRewrittenInputsToTheCallPath) {
  constexpr char text[] = R"(
    graph g.forward(%x: f32[4] user_input 0) {
      %new: f32[4] = aten.neg(%x)
      return %new: mutated 0
    })";
  ir::Graph graph = ir::parse(text);
  ir::Signature signature = writes(graph, {0});
  const auto expect_left = [&] {
    EXPECT_FALSE(writes_in_graph(signature, 0));
    place_write_backs(graph, signature);
    EXPECT_GRAPH_EQ(graph, text);
  };
  EXPECT_TRUE(writes_in_graph(signature, 0));
  signature.inputs[0].history_changed = true;
  expect_left();
  signature.inputs[0].history_changed = false;
  signature.inputs[0].metadata_changed = true;
  expect_left();
  signature.inputs[0].metadata_changed = false;
  signature.inputs[0].group = 0;
  expect_left();
}

}  // namespace
}  // namespace tandem::partition
