/// The passes, for programs outside the border.
#include "passes/registry.h"
#include "tandem/pass.h"

namespace tandem {

std::span<const PassInfo> registered_passes() { return passes::all_passes(); }

PassResult apply_pass(const std::string& name, ir::Graph& graph, const PassWatcher& watcher) {
  passes::PassObserver observer;
  if (watcher) {
    observer.after_step = [&](const passes::StepReport& step) {
      watcher({.changes = step.changes, .seconds = step.seconds});
    };
  }
  return passes::run_pass(passes::find_pass(name), graph, observer);
}

}  // namespace tandem
