/// The partitioner that asks the backend.
#include "partition/min_cut/min_cut.h"
#include "tandem/options.h"
#include "tandem/stages.h"

namespace tandem {

Split min_cut(const Joint& joint, const Options& options) {
  const std::shared_ptr<Backend> backend = options.backend.resolve();
  return partition::cut_at_minimum(joint, [&](const ir::Graph& graph, const ir::Node& node) {
    return backend->can_fuse(graph, node);
  });
}

}  // namespace tandem
