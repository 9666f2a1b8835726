#pragma once

#include "tandem/pass.h"

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace tandem::passes {

/// Every pass, sorted by name.
std::span<const PassInfo> all_passes();

/// The row of a pass; a UserError lists the names and the nearest one.
const PassInfo& find_pass(std::string_view name);

/// What a step did, told when it is over.
struct StepReport {
  std::string_view name;
  double seconds = 0;
  int64_t changes = 0;    // zero: the graph is as it was
  bool disabled = false;  // switched off: it did not run
  const ir::Graph& graph;
};

/// Who watches the steps, and which of them do not run.
struct PassObserver {
  std::set<std::string, std::less<>> disabled{};
  std::function<void(const StepReport&)> after_step{};
  bool verify = true;
};

/// Runs one step the way every step is run: off-switch, timer, report (where a dump hooks in),
/// verifier.
PassResult run_step(std::string_view name, const std::function<PassResult(ir::Graph&)>& step,
                    ir::Graph& graph, const PassObserver& observer = {});
PassResult run_pass(const PassInfo& pass, ir::Graph& graph, const PassObserver& observer = {});

}  // namespace tandem::passes
