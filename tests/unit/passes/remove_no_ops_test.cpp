#include "passes/remove_no_ops.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

TEST(RemoveNoOps, ErasesCallsThatReturnTheirOperand) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[4, 2] = aten.alias(%x)
      %b: f32[4, 2] = aten.detach(%a)
      %c: f32[4, 2] = aten.view(%b, [4, 2])
      %d: f32[4, 2] = aten.expand(%c, [4, 2], implicit=false)
      %y: f32[4, 2] = aten.exp(%d)
      return %y: output 0
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 4);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %y: f32[4, 2] = aten.exp(%x)
      return %y: output 0
    })");
}

TEST(RemoveNoOps, KeepsAViewThatChangesTheType) {
  constexpr char text[] = R"(
    graph g(%x: f32[4, 2] user_input 0) {
      %a: f32[8] = aten.view(%x, [8])
      %y: f32[8] = aten.exp(%a)
      return %y: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

// Same type, other elements.
TEST(RemoveNoOps, KeepsASliceThatKeepsTheType) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] (2) user_input 0) {
      %a: f32[4] (2) = aten.as_strided(%x, [4], [2], 1)
      %y: f32[4] = aten.exp(%a)
      return %y: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
}

// A result that is another tensor object in eager must not become the argument itself.
TEST(RemoveNoOps, NeverMakesAnOutputAnInput) {
  constexpr char text[] = R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.alias(%x)
      return %a: output 0
    })";
  ir::Graph graph = ir::parse(text);

  EXPECT_EQ(remove_no_ops(graph).changes, 0);
  EXPECT_GRAPH_EQ(graph, text);
}

TEST(RemoveNoOps, NeverReturnsOneValueTwice) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.exp(%x)
      %a: f32[4] = aten.alias(%y)
      %b: f32[4] = aten.alias(%y)
      return %a: output 0, %b: output 1
    })");

  EXPECT_EQ(remove_no_ops(graph).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %y: f32[4] = aten.exp(%x)
      %b: f32[4] = aten.alias(%y)
      return %y: output 0, %b: output 1
    })");
}

}  // namespace
}  // namespace tandem::passes
