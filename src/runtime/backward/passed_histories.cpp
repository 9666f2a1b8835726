#include "runtime/backward/passed_histories.h"

#include <algorithm>

namespace tandem::runtime {
namespace {

using ir::CallTensor;
using ir::History;
using From = CallPlan::PassedHistory::From;

/// Whether an argument has this history anyway. The one that stands for an input has the input's
/// first history. The one that stands for a member of a group has the base's first history.
bool has_argument(const ir::Signature& signature, const History& history) {
  if (history.number > 0) return false;
  return history.tensor.is_group() ||
         (history.tensor.is_input() &&
          signature.inputs[static_cast<size_t>(history.tensor.index)].requires_grad);
}

/// The views of a base that the part rewrites. They have another history afterwards.
std::vector<CallTensor> renewed_views(const ir::Signature& signature, const CallTensor& base) {
  std::vector<CallTensor> views;
  const ir::GroupFacts& group = signature.groups[static_cast<size_t>(base.index)];
  if (!group.is_root) return views;
  for (int64_t member : group.members) {
    const ir::InputFacts& facts = signature.inputs[static_cast<size_t>(member)];
    if (facts.duplicate_of < 0 && facts.requires_grad && facts.requires_grad_after &&
        !facts.metadata_changed)
      views.push_back(CallTensor::input(member));
  }
  return views;
}

}  // namespace

std::vector<CallPlan::PassedHistory> passed_histories(const ir::Signature& signature,
                                                      const CallPlan::Part& part) {
  std::vector<CallPlan::PassedHistory> passed;
  size_t kept = 0;
  for (size_t k = 0; k < part.edges.size(); ++k) {
    const History& of = signature.gradients[static_cast<size_t>(part.edges[k].position)].of;
    if (!has_argument(signature, of)) passed.push_back({of, From::Edge, k});
  }
  // What a formula has saved of its results has the history of the results.
  for (size_t slot = 0; slot < part.tangents.size(); ++slot) {
    const History& of = signature.tangents[part.tangents[slot]].of;
    if (of.tensor.is_input()) {
      passed.push_back({of, From::Kept, kept++});
    } else {
      passed.push_back({of, From::Slot, slot});
    }
  }
  for (size_t tangent : part.tangents) {
    const CallTensor& base = signature.tangents[tangent].of.tensor;
    if (!base.is_group()) continue;
    for (const CallTensor& view : renewed_views(signature, base))
      passed.push_back({signature.last_history(view), From::Kept, kept++});
  }
  return passed;
}

}  // namespace tandem::runtime
