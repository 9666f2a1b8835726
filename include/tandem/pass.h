#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace tandem {

/// What a pass did. `changes` counts edits; zero means that the graph is as it was.
struct PassResult {
  int64_t changes = 0;
};

using PassFn = PassResult (*)(ir::Graph&);

/// A row of the pass registry.
struct PassInfo {
  const char* name;     // `remove-dead-nodes`
  const char* summary;  // one line
  PassFn run;
  // Changes no bit of any result. Others need Rounding::fast, except `decompose`: each row of its
  // table says for itself.
  bool exact;
  bool on_by_default = true;  // TANDEM_PASSES switches it
};

/// Every pass, sorted by name.
TANDEM_API std::span<const PassInfo> registered_passes();

/// One step as a watcher is told of it.
struct PassStep {
  int64_t changes = 0;
  double seconds = 0;
};
using PassWatcher = std::function<void(const PassStep&)>;

/// Runs a pass the way the pipeline does: timed, the graph verified afterwards. `watcher` is called
/// before the verifier, since a broken graph is the one worth looking at. A UserError lists the
/// passes if there is none of this name.
TANDEM_API PassResult apply_pass(const std::string& name, ir::Graph& graph,
                                 const PassWatcher& watcher = {});

}  // namespace tandem
