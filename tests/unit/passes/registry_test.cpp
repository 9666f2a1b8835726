#include "passes/registry.h"

#include "support/graph_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::passes {
namespace {

constexpr char kDeadSine[] = R"(
  graph g(%x: f32[4] user_input 0) {
    %unused: f32[4] = aten.sin(%x)
    return %x: output 0
  })";

PassResult break_the_graph(ir::Graph& graph) {
  // A result of another type than its readers were typed for does not matter; a rank without
  // strides does.
  ir::TensorType type = *graph.value(graph.inputs()[0]).tensor_type();
  type.strides.clear();
  graph.set_type(graph.inputs()[0], type);
  return {.changes = 1};
}

TEST(PassRegistry, HoldsEveryPassOnceInOrderOfNames) {
  std::vector<std::string> names;
  for (const PassInfo& pass : all_passes()) {
    names.emplace_back(pass.name);
    EXPECT_STRNE(pass.summary, "");
    EXPECT_EQ(&find_pass(pass.name), &pass);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"decompose", "fold-constants", "merge-duplicates",
                                             "merge-views", "remove-dead-nodes", "remove-no-ops",
                                             "remove-round-trips"}));
}

TEST(PassRegistry, NamesTheNearestPassOfAWrongName) {
  try {
    find_pass("remove-dead-node");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.stage(), "passes");
    EXPECT_STREQ(
        error.what(),
        "passes: no pass is called \"remove-dead-node\"\n"
        "  known:  decompose, fold-constants, merge-duplicates, merge-views, remove-dead-nodes, "
        "remove-no-ops, remove-round-trips\n"
        "  remedy: did you mean \"remove-dead-nodes\"?");
  }
}

TEST(RunPass, ReportsWhatAStepDid) {
  ir::Graph graph = ir::parse(kDeadSine);
  int64_t reports = 0;
  PassObserver observer;
  observer.after_step = [&](const StepReport& report) {
    ++reports;
    EXPECT_EQ(report.name, "remove-dead-nodes");
    EXPECT_EQ(report.changes, 1);
    EXPECT_GE(report.seconds, 0);
    EXPECT_FALSE(report.disabled);
    EXPECT_EQ(report.graph.node_count(), 0u);
  };

  EXPECT_EQ(run_pass(find_pass("remove-dead-nodes"), graph, observer).changes, 1);
  EXPECT_EQ(reports, 1);
}

TEST(RunPass, LeavesTheGraphAloneWhenSwitchedOff) {
  ir::Graph graph = ir::parse(kDeadSine);
  bool disabled = false;
  PassObserver observer;
  observer.disabled.insert("remove-dead-nodes");
  observer.after_step = [&](const StepReport& report) { disabled = report.disabled; };

  EXPECT_EQ(run_pass(find_pass("remove-dead-nodes"), graph, observer).changes, 0);
  EXPECT_TRUE(disabled);
  EXPECT_GRAPH_EQ(graph, kDeadSine);
}

TEST(RunPass, CatchesAPassThatBreaksTheGraph) {
  const PassInfo broken{"break-the-graph", "for this test", break_the_graph, true};
  ir::Graph graph = ir::parse(kDeadSine);
  ir::Graph unchecked = graph;

  try {
    run_pass(broken, graph);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.stage(), "passes");
    EXPECT_NE(std::string(error.what()).find("break-the-graph broke the graph"), std::string::npos)
        << error.what();
  }
  PassObserver observer;
  observer.verify = false;
  EXPECT_EQ(run_pass(broken, unchecked, observer).changes, 1);
}

}  // namespace
}  // namespace tandem::passes
