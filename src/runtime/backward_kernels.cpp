#include "runtime/backward_kernels.h"

#include "partition/drop_tangents.h"

#include <algorithm>

namespace tandem::runtime {

BackwardKernels::BackwardKernels(ir::Graph graph, CompileContext context,
                                 std::shared_ptr<Backend> backend)
    : graph_(std::move(graph)), context_(std::move(context)), backend_(std::move(backend)) {
  all_ = backend_->compile(graph_, context_);
}

Executable& BackwardKernels::get(const std::vector<bool>& defined) {
  if (std::all_of(defined.begin(), defined.end(), [](bool is) { return is; })) return *all_;
  std::lock_guard lock(mutex_);
  std::unique_ptr<Executable>& kernel = some_[defined];
  if (!kernel) kernel = backend_->compile(partition::drop_tangents(graph_, defined), context_);
  return *kernel;
}

}  // namespace tandem::runtime
