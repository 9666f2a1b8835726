#include "runtime/backward/backward_kernels.h"

#include "base/error.h"
#include "tandem/ir/type.h"

#include <algorithm>

namespace tandem::runtime {

BackwardKernels::BackwardKernels(const Artifact& artifact,
                                 std::shared_ptr<BackwardCompiler> compiler)
    : artifact_(artifact), compiler_(std::move(compiler)) {}

/// Whether autocast is on for a device that the backward computes on.
bool BackwardKernels::casts(const libtorch::AutocastState& state) const {
  if (!state.any()) return false;
  const ir::Graph& graph = artifact_.split.backward;
  return std::ranges::any_of(graph.inputs(), [&](ir::ValueId input) {
    const ir::TypePtr& type = graph.value(input).tensor_type();
    return type && ((state.cpu && type->device.is_cpu()) || (state.cuda && type->device.is_cuda()));
  });
}

const Backward& BackwardKernels::get(const std::vector<bool>& defined) {
  if (const auto state = libtorch::AutocastState::now(); casts(state)) [[unlikely]]
    return find(defined, state);
  for (const Backward& backward : artifact_.backwards) {
    if (backward.defined == defined) return backward;
  }
  return find(defined, {});
}

const Backward& BackwardKernels::find(const std::vector<bool>& defined,
                                      const libtorch::AutocastState& state) {
  const std::lock_guard lock(mutex_);
  const auto known = further_.find({state, defined});
  if (known != further_.end()) return known->second;
  if (!compiler_) {
    TANDEM_UNSUPPORTED("call", "the entry was stored without the backward for ",
                       state.any() ? "autocast" : "these of its results",
                       "\n  instead: the backward of all results, without autocast, works",
                       "\n  remedy: load it where graphs can be compiled");
  }
  return further_.emplace(std::pair(state, defined), compiler_->compile(artifact_, defined, state))
      .first->second;
}

void BackwardKernels::release_cached_memory() {
  for (const Backward& backward : artifact_.backwards)
    backward.kernels.ready->release_cached_memory();
  const std::lock_guard lock(mutex_);
  for (auto& [what, backward] : further_) backward.kernels.ready->release_cached_memory();
}

const partition::TangentUse& BackwardKernels::tangent_use() {
  const std::lock_guard lock(mutex_);
  if (!use_) use_ = partition::tangent_use(artifact_.split.backward);
  return *use_;
}

}  // namespace tandem::runtime
