#include "runtime/backward_kernels.h"

#include "partition/drop_tangents.h"

#include <algorithm>

namespace tandem::runtime {

BackwardKernels::BackwardKernels(ir::Graph graph, CompileContext context,
                                 std::shared_ptr<Backend> backend)
    : graph_(std::move(graph)), context_(std::move(context)), backend_(std::move(backend)) {
  all_ = compile(graph_);
}

Backward BackwardKernels::compile(const ir::Graph& graph) const {
  Backward backward{.kernels = backend_->compile(graph, context_), .reads = {}};
  for (ir::ValueId input : graph.inputs()) {
    if (graph.input_role(input).role != ir::Role::Saved) continue;
    backward.reads.push_back(graph.value(input).has_users());
  }
  return backward;
}

const Backward& BackwardKernels::get(const std::vector<bool>& defined) {
  if (std::all_of(defined.begin(), defined.end(), [](bool is) { return is; })) return all_;
  std::lock_guard lock(mutex_);
  Backward& backward = some_[defined];
  if (!backward.kernels) backward = compile(partition::drop_tangents(graph_, defined));
  return backward;
}

const partition::TangentUse& BackwardKernels::tangent_use() {
  std::lock_guard lock(mutex_);
  if (!use_) use_ = partition::tangent_use(graph_);
  return *use_;
}

}  // namespace tandem::runtime
