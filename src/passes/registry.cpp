#include "passes/registry.h"

#include "base/error.h"
#include "passes/decompose.h"
#include "passes/fold_constants.h"
#include "passes/merge_duplicates.h"
#include "passes/merge_views.h"
#include "passes/remove_dead_nodes.h"
#include "passes/remove_no_ops.h"
#include "passes/remove_round_trips.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tandem::passes {
namespace {

constexpr std::array kPasses = {
    PassInfo{"decompose", "writes ops as others, by Tandem's own table", decompose, false},
    PassInfo{"fold-constants", "computes what depends on no input", fold_constants, true},
    PassInfo{"merge-duplicates", "keeps the first of several equal computations", merge_duplicates,
             true},
    PassInfo{"merge-views", "keeps the first of several views of the same elements", merge_views,
             true},
    PassInfo{"remove-dead-nodes", "erases what nobody reads and what has no effect",
             remove_dead_nodes, true},
    PassInfo{"remove-no-ops", "erases calls that return their operand as it is", remove_no_ops,
             true},
    PassInfo{"remove-round-trips", "erases copies there and back, parts put in and taken out",
             remove_round_trips, true},
};

// Levenshtein's, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string known_names() {
  std::string names;
  for (const PassInfo& pass : kPasses)
    names += (names.empty() ? "" : ", ") + std::string(pass.name);
  return names;
}

}  // namespace

std::span<const PassInfo> all_passes() { return kPasses; }

const PassInfo& find_pass(std::string_view name) {
  const auto* found = std::ranges::find(
      kPasses, name, [](const PassInfo& pass) { return std::string_view(pass.name); });
  if (found != kPasses.end()) return *found;
  const auto* nearest = std::ranges::min_element(
      kPasses, {}, [&](const PassInfo& pass) { return edit_distance(name, pass.name); });
  throw UserError("passes", base::str("no pass is called \"", name, "\"\n  known:  ", known_names(),
                                      "\n  remedy: did you mean \"", nearest->name, "\"?"));
}

PassResult run_step(std::string_view name, const std::function<PassResult(ir::Graph&)>& step,
                    ir::Graph& graph, const PassObserver& observer) {
  PassResult result;
  StepReport report{.name = name, .graph = graph};
  report.disabled = observer.disabled.contains(name);
  if (!report.disabled) {
    const auto start = std::chrono::steady_clock::now();
    result = step(graph);
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report.changes = result.changes;
  }
  // The report comes first: a dump of the graph that fails the verifier is the one worth having.
  if (observer.after_step) observer.after_step(report);
  if (observer.verify && !report.disabled) {
    const std::vector<ir::Violation> broken = ir::violations(graph);
    TANDEM_CHECK(broken.empty(), "passes", name,
                 " broke the graph\n  rule:   ", broken.front().text);
  }
  return result;
}

PassResult run_pass(const PassInfo& pass, ir::Graph& graph, const PassObserver& observer) {
  return run_step(pass.name, pass.run, graph, observer);
}

}  // namespace tandem::passes
