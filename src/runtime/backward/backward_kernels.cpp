#include "runtime/backward/backward_kernels.h"

#include "ops/own/write_in_backward.h"
#include "partition/drop_tangents.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/type.h"

#include <algorithm>

namespace tandem::runtime {
namespace {

bool all(const std::vector<bool>& flags) {
  return std::all_of(flags.begin(), flags.end(), [](bool is) { return is; });
}

}  // namespace

namespace {

/// By a hook or custom function: its data may be any by then, so nobody has to check it.
bool is_only_written(const ir::Graph& graph, ir::ValueId input) {
  return graph.value(input).output_uses() == 0 &&
         std::ranges::all_of(graph.value(input).users(), [&](ir::NodeId id) {
           const ir::Node& node = graph.node(id);
           return ops::kWriteInBackward.is(node) &&
                  *node.operands()[0].get_if<ir::ValueId>() == input;
         });
}

}  // namespace

BackwardKernels::BackwardKernels(ir::Graph graph, CompileContext context,
                                 std::shared_ptr<Backend> backend,
                                 std::vector<ir::EffectFacts> effects)
    : graph_(std::move(graph)),
      context_(std::move(context)),
      backend_(std::move(backend)),
      effects_(std::move(effects)) {
  all_ = compile_whole(graph_);
}

Backward BackwardKernels::compile_whole(const ir::Graph& graph) const {
  if (!partition::has_arrival_marks(graph)) return compile(graph);
  ir::Graph whole = graph;
  partition::drop_arrival_marks(whole);
  return compile(whole);
}

Backward BackwardKernels::compile(const ir::Graph& graph) const {
  Backward backward{.kernels = backend_->compile(graph, context_), .reads = {}, .writes = {}};
  for (ir::ValueId input : graph.inputs()) {
    if (graph.input_role(input).role != ir::Role::Saved) continue;
    const bool used = graph.value(input).has_users();
    const bool only_written = used && is_only_written(graph, input);
    backward.reads.push_back(used && !only_written);
    backward.writes.push_back(only_written);
  }
  return backward;
}

/// Whether autocast is on for a device that the backward computes on.
bool BackwardKernels::casts(const libtorch::AutocastState& state) const {
  if (!state.any() || with_autocast_ == nullptr) return false;
  return std::ranges::any_of(graph_.inputs(), [&](ir::ValueId input) {
    const ir::TypePtr& type = graph_.value(input).tensor_type();
    return type && ((state.cpu && type->device.is_cpu()) || (state.cuda && type->device.is_cuda()));
  });
}

const Backward& BackwardKernels::get(const std::vector<bool>& defined) {
  if (const libtorch::AutocastState state = libtorch::AutocastState::now(); casts(state))
      [[unlikely]]
    return get(defined, state);
  if (all(defined)) return all_;
  std::lock_guard lock(mutex_);
  Backward& backward = some_[defined];
  if (!backward.kernels) backward = compile(partition::drop_tangents(graph_, defined, effects_));
  return backward;
}

const Backward& BackwardKernels::get(const std::vector<bool>& defined,
                                     const libtorch::AutocastState& state) {
  std::lock_guard lock(mutex_);
  InAutocast& known = in_autocast_[state];
  if (known.graph.outputs().empty()) {
    ir::Graph graph = with_autocast_(graph_, state);
    passes::remove_dead_nodes(graph);
    ir::verify(graph, "lower");
    known.graph = std::move(graph);
  }
  const ir::Graph& graph = known.graph;
  Backward& backward = known.kernels[defined];
  if (!backward.kernels) {
    backward = all(defined) ? compile_whole(graph)
                            : compile(partition::drop_tangents(graph, defined, effects_));
  }
  return backward;
}

void BackwardKernels::release_cached_memory() {
  std::lock_guard lock(mutex_);
  all_.kernels->release_cached_memory();
  for (auto& [defined, backward] : some_) {
    if (backward.kernels) backward.kernels->release_cached_memory();
  }
  for (auto& [state, known] : in_autocast_) {
    for (auto& [defined, backward] : known.kernels) {
      if (backward.kernels) backward.kernels->release_cached_memory();
    }
  }
}

const partition::TangentUse& BackwardKernels::tangent_use() {
  std::lock_guard lock(mutex_);
  if (!use_) use_ = partition::tangent_use(graph_);
  return *use_;
}

}  // namespace tandem::runtime
