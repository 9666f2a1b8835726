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

const Backward& BackwardKernels::get(const partition::Asked& asked) {
  libtorch::AutocastState state = libtorch::AutocastState::now();
  if (!casts(state)) state = {};
  for (const Backward& backward : artifact_.backwards) {
    if (backward.asked == asked && backward.autocast == state) return backward;
  }
  return find_further(asked, state);
}

std::shared_ptr<const Backward> BackwardKernels::made(const Further& further) const {
  const std::lock_guard lock(mutex_);
  return further.made;
}

const Backward& BackwardKernels::find_further(const partition::Asked& asked,
                                              const libtorch::AutocastState& state) {
  if (!compiler_) {
    // That of all gradients has these, too.
    if (!asked.wanted.empty()) return get({.defined = asked.defined});
    TANDEM_UNSUPPORTED("call", "the entry was stored without the backward for ",
                       state.any() ? "autocast" : "these of its results",
                       "\n  instead: the backward of all results, without autocast, works",
                       "\n  remedy: load it where graphs can be compiled");
  }
  Further* further = nullptr;
  {
    const std::lock_guard lock(mutex_);
    further = &further_[{state, asked}];
    if (further->made) return *further->made;
  }
  const std::lock_guard compiling(further->compiling);
  if (const auto backward = made(*further)) return *backward;
  auto backward = std::make_shared<const Backward>(compiler_->compile(artifact_, asked, state));
  const std::lock_guard lock(mutex_);
  further->made = std::move(backward);
  return *further->made;
}

std::vector<Backward> BackwardKernels::further() const {
  const std::lock_guard lock(mutex_);
  std::vector<Backward> all;
  for (const auto& [what, further] : further_) {
    if (further.made) all.push_back(*further.made);
  }
  return all;
}

void BackwardKernels::release_cached_memory() {
  for (const Backward& backward : artifact_.backwards)
    backward.kernels.ready->release_cached_memory();
  const std::lock_guard lock(mutex_);
  for (const auto& [what, further] : further_) {
    if (further.made) further.made->kernels.ready->release_cached_memory();
  }
}

std::vector<bool> BackwardKernels::leading_to(const std::vector<bool>& wanted) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = leading_.try_emplace(wanted);
  if (!is_new) return known->second;
  const ir::Signature& signature = artifact_.split.signature;
  std::vector<bool>& leading = known->second;
  leading.resize(signature.tangents.size());
  const std::vector<bool> run = partition::formulas_run(
      signature, {.defined = std::vector<bool>(leading.size(), true), .wanted = wanted});
  for (size_t i = 0; i < run.size(); ++i) {
    for (int64_t tangent : signature.formulas[i].tangents)
      leading[static_cast<size_t>(tangent)] = leading[static_cast<size_t>(tangent)] || run[i];
  }
  return leading;
}

const partition::TangentUse& BackwardKernels::tangent_use() {
  const std::lock_guard lock(mutex_);
  if (!use_) use_ = partition::tangent_use(artifact_.split.backward);
  return *use_;
}

}  // namespace tandem::runtime
