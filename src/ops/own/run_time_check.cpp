#include "ops/own/run_time_check.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::ops {

bool has_run_time_checks(const ir::Graph& graph) {
  bool found = false;
  graph.for_each_node([&](const ir::Node& node) {
    found = found ||
            (node.kind() == ir::NodeKind::Op && node.op().operator_name().name == kCheckNotEqual);
  });
  return found;
}

}  // namespace tandem::ops
