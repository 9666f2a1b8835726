#pragma once

#include "tandem/ir/graph.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tandem::test {

/// Whether `graph` is the one that `expected` describes. Names of values do not count; locations
/// count only if `expected` has one.
::testing::AssertionResult same_graph(const ir::Graph& graph, std::string_view expected);

/// The graph with every value unnamed, in regions too, so that the printer numbers them.
ir::Graph without_names(ir::Graph graph);

}  // namespace tandem::test

#define EXPECT_GRAPH_EQ(graph, text) EXPECT_TRUE(::tandem::test::same_graph(graph, text))
