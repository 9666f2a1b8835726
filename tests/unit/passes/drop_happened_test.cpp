#include "passes/drop_happened.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::passes {
namespace {

TEST(DropHappened, ErasesEffectsUpToTheLastNodeOfTheCallsBefore) {
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      aten._print("before")
      %draw: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %a: f32[4] = aten.sin(%x)
      aten._print("after")
      return %a: output 0
    })");
  const ir::NodeId last = graph.previous(graph.last_node());

  EXPECT_EQ(drop_happened(graph, last).changes, 1);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %draw: f32[4] = aten.bernoulli.p(%x, 0.5, generator=none)
      %a: f32[4] = aten.sin(%x)
      aten._print("after")
      return %a: output 0
    })");
}

}  // namespace
}  // namespace tandem::passes
