/// Passes that are left out, and the times of single ones.
#include "pipeline/settings/options.h"
#include "support/environment.h"
#include "support/temporary_folder.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <string>

namespace tandem::pipeline {
namespace {

using T = at::Tensor;
using test::EnvironmentVariable;

int64_t count(const ir::Graph& graph, std::string_view op) {
  int64_t found = 0;
  graph.for_each_node([&](const ir::Node& node) {
    found += node.kind() == ir::NodeKind::Op && node.op().operator_name().name == op ? 1 : 0;
  });
  return found;
}

T twice_transposed(const T& x) { return x.t().t().exp(); }

TEST(PassSwitches, APassIsLeftOutAndHasNoTime) {
  const T x = torch::ones({2, 3});
  auto all = compile(twice_transposed);
  const T expected = all(x);
  const EnvironmentVariable off("TANDEM_PASSES", "-merge-views,-remove-no-ops");
  auto without = compile(twice_transposed);
  EXPECT_TRUE(at::equal(expected, without(x)));

  EXPECT_EQ(count(all.entries()[0].forward(), "aten::t"), 0);
  EXPECT_EQ(count(without.entries()[0].forward(), "aten::t"), 2);
  const Stats with = all.stats(), less = without.stats();
  EXPECT_TRUE(with.seconds.contains("passes/merge-views"));
  EXPECT_FALSE(less.seconds.contains("passes/merge-views"));
  EXPECT_LE(with.seconds.at("passes/merge-views"), with.seconds.at("passes"));
}

TEST(PassSwitches, TheLastWordCounts) {
  set_pass_switches({});  // the environment of the test before was read last
  const PassInfo pass{"merge-views", "for this test", nullptr, true};
  EXPECT_TRUE(runs(pass, Rounding::eager));
  EXPECT_TRUE(set_pass_switches({"-merge-views"}));
  EXPECT_FALSE(runs(pass, Rounding::eager));
  EXPECT_FALSE(set_pass_switches({"merge-view"})) << "no such pass";
  EXPECT_FALSE(runs(pass, Rounding::eager)) << "nothing changed";
  EXPECT_TRUE(set_pass_switches({"-merge-views", "merge-views"}));
  EXPECT_TRUE(runs(pass, Rounding::eager));
  set_pass_switches({});
}

TEST(PassSwitches, APassThatIsOffByDefaultRunsIfNamed) {
  set_pass_switches({});
  const PassInfo optional{"merge-views", "for this test", nullptr, true, false};
  EXPECT_FALSE(runs(optional, Rounding::eager));
  set_pass_switches({"merge-views"});
  EXPECT_TRUE(runs(optional, Rounding::eager));
  set_pass_switches({});
}

// Nobody who wants eager's bits gets others by naming a pass.
TEST(PassSwitches, AnInexactPassNeedsFreeRounding) {
  const PassInfo inexact{"merge-views", "for this test", nullptr, false};
  EXPECT_FALSE(runs(inexact, Rounding::eager));
  set_pass_switches({"merge-views"});
  EXPECT_FALSE(runs(inexact, Rounding::eager));
  EXPECT_TRUE(runs(inexact, Rounding::fast));
  set_pass_switches({});
}

// Like any other step: what was decomposed is seen in the graph, its time in the statistics.
TEST(PassSwitches, DecompositionsAreSwitchedOffTimedAndDumpedLikeAPass) {
  const T x = torch::ones({2, 3});
  Options options;
  options.decompositions = Decompositions::standard();
  const auto function = [](const T& a) { return torch::softmax(a, 1); };
  auto with = compile(function, options);
  const T expected = with(x);
  EXPECT_EQ(count(with.entries()[0].forward(), "aten::_softmax"), 0);
  EXPECT_TRUE(with.stats().seconds.contains("passes/decompose"));

  const test::TemporaryFolder folder("decompose");
  options.dump_dir = folder.path();
  const EnvironmentVariable off("TANDEM_PASSES", "-decompose");
  auto without = compile(function, options);
  EXPECT_TRUE(at::allclose(expected, without(x)));
  EXPECT_EQ(count(without.entries()[0].forward(), "aten::_softmax"), 1);
  EXPECT_FALSE(without.stats().seconds.contains("passes/decompose"));
  std::ifstream dump(folder.path() / "function0.entry0.01-decompose.tdm");
  std::string text;
  std::getline(dump, text);
  EXPECT_EQ(text, "# unchanged");
}

}  // namespace
}  // namespace tandem::pipeline
