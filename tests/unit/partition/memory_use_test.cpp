#include "partition/memory_use.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::partition {
namespace {

MemoryUse use_of(const ir::Graph& graph, std::vector<int64_t> released = {}) {
  return memory_use(graph, order_of(graph), released);
}

TEST(MemoryUse, AValueLivesFromItsMakerToItsLastReader) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[10] = aten.mm(%x, %x)
      %b: f32[10] = aten.mm(%a, %a)
      %c: f32[10] = aten.mm(%b, %b)
      return %c: output 0
    })");
  EXPECT_EQ(use_of(graph).peak, 80);
  EXPECT_EQ(use_of(graph).end, 40);
}

TEST(MemoryUse, AViewTakesNothingAndKeepsWhatItShows) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[10] = aten.exp(%x)
      %v: f32[2, 5] = aten.view(%a, [2, 5])
      %s: f32[] = aten.sum(%v, dtype=none)
      return %s: output 0
    })");
  EXPECT_EQ(use_of(graph).peak, 44);
  EXPECT_EQ(use_of(graph).end, 4);
}

TEST(MemoryUse, APointwiseOpTakesOverAnOperandThatDiesWithIt) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[10] = aten.exp(%x)
      %b: f32[10] = aten.sin(%a)
      return %b: output 0
    })");
  EXPECT_EQ(use_of(graph).peak, 40);
}

TEST(MemoryUse, AnInputThatIsReleasedGivesItsBytesBack) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[10] saved 0) {
      %s: f32[] = aten.sum(%x, dtype=none)
      return %s: grad 0
    })");
  EXPECT_EQ(use_of(graph, {40}).end, 4 - 40);
  EXPECT_EQ(use_of(graph, {0}).end, 4);
}

// Both large values would live at once; the sums let each go before the next comes.
constexpr const char* kTwoSums = R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[10, 10] = aten.mm(%x, %x)
      %b: f32[10, 10] = aten.mm(%x, %x)
      %sa: f32[] = aten.sum(%a, dtype=none)
      %sb: f32[] = aten.sum(%b, dtype=none)
      return %sa: output 0, %sb: output 1
    })";

TEST(ScheduleForMemory, WhatFreesMemoryComesEarly) {
  ir::Graph graph = ir::parse(kTwoSums);
  EXPECT_EQ(use_of(graph).peak, 804);
  schedule_for_memory(graph, {});
  EXPECT_EQ(use_of(graph).peak, 408);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[10, 10] = aten.mm(%x, %x)
      %sa: f32[] = aten.sum(%a, dtype=none)
      %b: f32[10, 10] = aten.mm(%x, %x)
      %sb: f32[] = aten.sum(%b, dtype=none)
      return %sa: output 0, %sb: output 1
    })");
}

TEST(ScheduleForMemory, DrawsKeepTheirOrder) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[100] = aten.rand([100], dtype=none, layout=none, device=none, pin_memory=none)
      %b: f32[200] = aten.rand([200], dtype=none, layout=none, device=none, pin_memory=none)
      %sa: f32[] = aten.sum(%a, dtype=none)
      %sb: f32[] = aten.sum(%b, dtype=none)
      return %sa: output 0, %sb: output 1
    })");
  schedule_for_memory(graph, {});
  std::vector<int64_t> draws;
  graph.for_each_node([&](const ir::Node& node) {
    if (node.op().operator_name().name == "aten::rand")
      draws.push_back(graph.value(node.results()[0]).tensor_type()->bytes());
  });
  EXPECT_EQ(draws, (std::vector<int64_t>{400, 800}));
  EXPECT_EQ(use_of(graph).peak, 808);
}

TEST(ScheduleForMemory, AGraphThatWritesToItsInputsStays) {
  const char* text = R"(
    graph g(%x: f32[10] user_input 0) {
      %a: f32[10, 10] = aten.mm(%x, %x)
      %b: f32[10, 10] = aten.mm(%x, %x)
      %sa: f32[] = aten.sum(%a, dtype=none)
      %sb: f32[] = aten.sum(%b, dtype=none)
      %w: f32[10] = aten.copy_(%x, %sa, false)
      return %sa: output 0, %sb: output 1
    })";
  ir::Graph graph = ir::parse(text);
  schedule_for_memory(graph, {});
  EXPECT_GRAPH_EQ(graph, text);
}

}  // namespace
}  // namespace tandem::partition
