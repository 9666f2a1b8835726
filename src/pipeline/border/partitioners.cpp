/// The partitioners that ask the backend.
#include "partition/min_cut/cut_graph.h"
#include "partition/min_cut/min_cut.h"
#include "tandem/options.h"
#include "tandem/stages.h"

namespace tandem {
namespace {

partition::CanFuse fused_by(const Options& options) {
  return [backend = options.backend.resolve()](const ir::Graph& graph, const ir::Node& node) {
    return backend->can_fuse(graph, node);
  };
}

bool fuses_anything(const partition::CanFuse& can_fuse, const ir::Graph& graph) {
  bool any = false;
  graph.for_each_node([&](const ir::Node& node) {
    any = any || (node.kind() == ir::NodeKind::Op && can_fuse(graph, node));
  });
  return any;
}

}  // namespace

Split min_cut(const Joint& joint, const Options& options) {
  return partition::cut_at_minimum(joint, fused_by(options));
}

Split min_cut_recompute(const Joint& joint, const Options& options) {
  const partition::CanFuse by_backend = fused_by(options);
  // What a backend says of itself is true; the guess is for those that fuse nothing.
  const bool fuses = fuses_anything(by_backend, joint.graph);
  return partition::cut_at_minimum(joint, fuses ? by_backend : partition::fuses_sweeps);
}

}  // namespace tandem
