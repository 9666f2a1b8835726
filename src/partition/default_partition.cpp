#include "partition/halves.h"
#include "partition/saved_values.h"
#include "passes/merge_duplicates.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/graph.h"
#include "tandem/stages.h"

#include <vector>

namespace tandem {

Split default_partition(const Joint& joint, const Options&) {
  Split split;
  split.signature = joint.signature;
  ir::Graph whole = joint.graph;
  // Before anything is saved: what only a dead node reads need not be.
  passes::remove_dead_nodes(whole);
  if (!partition::has_backward(whole)) {
    split.forward = partition::forward_half(whole, {});
    return split;
  }
  const std::vector<partition::SavedValue> saved = partition::saved_values(whole);
  partition::name_saved_values(whole, saved);
  for (const partition::SavedValue& value : saved)
    split.saved.push_back(partition::describe(whole, value));
  split.forward = partition::forward_half(whole, saved);
  split.backward = partition::backward_half(whole, saved, partition::is_repeatable);
  // Not before: what the backward recorded for itself stays there.
  passes::merge_duplicates(split.forward);
  passes::merge_duplicates(split.backward);
  return split;
}

}  // namespace tandem
