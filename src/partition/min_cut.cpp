#include "base/error.h"
#include "partition/choose_saved.h"
#include "partition/halves.h"
#include "partition/schedule_backward.h"
#include "passes/merge_duplicates.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/graph.h"
#include "tandem/stages.h"

#include <vector>

namespace tandem {

Split min_cut(const Joint& joint, const Options&) {
  Split split;
  split.signature = joint.signature;
  ir::Graph whole = joint.graph;
  passes::remove_dead_nodes(whole);
  // What is computed twice would be weighed twice.
  passes::merge_duplicates(whole);
  if (!partition::has_backward(whole)) {
    split.forward = partition::forward_half(whole, {});
    return split;
  }
  const std::vector<partition::SavedValue> saved = partition::choose_saved(whole, joint.signature);
  partition::name_saved_values(whole, saved);
  for (const partition::SavedValue& value : saved)
    split.saved.push_back(partition::describe(whole, value));
  split.forward = partition::forward_half(whole, saved);
  split.backward = partition::backward_half(whole, saved, passes::removable);
  partition::schedule_backward(split.backward);
  split.recomputed = partition::recomputed_values(whole, split);
  return split;
}

}  // namespace tandem
