#include "partition/halves.h"
#include "partition/saved_values.h"
#include "passes/merge_duplicates.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/graph.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <vector>

namespace tandem {

BackendRef::BackendRef() : BackendRef("llvm") {}

Split default_partition(const Joint& joint, const Options&) {
  Split split;
  split.signature = joint.signature;
  ir::Graph whole = joint.graph;
  // Dead nodes go before anything is saved: what only they read need not be kept.
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
  // After the cut, so that the backward keeps what it has recorded for itself.
  passes::merge_duplicates(split.forward);
  passes::merge_duplicates(split.backward);
  return split;
}

}  // namespace tandem
