#include "partition/min_cut/min_cut.h"

#include "partition/halves.h"
#include "partition/memory_use.h"
#include "partition/min_cut/choose_saved.h"
#include "partition/schedule_backward.h"
#include "passes/merge_duplicates.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/graph.h"
#include "tandem/stages.h"

#include <vector>

namespace tandem::partition {

Split cut_at_minimum(const Joint& joint, const CanFuse& can_fuse) {
  Split split;
  split.signature = joint.signature;
  ir::Graph whole = joint.graph;
  passes::remove_dead_nodes(whole);
  // What is computed twice would be weighed twice.
  passes::merge_duplicates(whole);
  if (!has_backward(whole)) {
    split.forward = forward_half(whole, {});
    return split;
  }
  const CutGraph graph(whole, can_fuse);
  const std::vector<SavedValue> saved = choose_saved(whole, joint.signature, graph);
  name_saved_values(whole, saved);
  for (const SavedValue& value : saved) split.saved.push_back(describe(whole, value));
  split.forward = forward_half(whole, saved);
  split.backward = backward_half(whole, saved, passes::removable);
  schedule_backward(split.backward);
  // A backend that fuses makes its own order. A node that mentions a size comes after the one that
  // makes it, which no list of operands says.
  if (!graph.fuses() && whole.symbols().empty()) {
    schedule_for_memory(split.forward, {});
    schedule_for_memory(split.backward, released_bytes(split));
  }
  split.recomputed = recomputed_values(whole, split);
  return split;
}

}  // namespace tandem::partition
