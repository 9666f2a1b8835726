#include "pipeline/lower.h"

#include "ops/own/write_in_backward.h"
#include "partition/tangents/drop_tangents.h"

#include <algorithm>

namespace tandem::pipeline {
namespace {

bool all(const std::vector<bool>& flags) {
  return std::ranges::all_of(flags, [](bool is) { return is; });
}

/// By a hook or custom function: its data may be any by then, so nobody has to check it.
bool is_only_written(const ir::Graph& graph, ir::ValueId input) {
  return graph.value(input).output_uses() == 0 &&
         std::ranges::all_of(graph.value(input).users(), [&](ir::NodeId id) {
           const ir::Node& node = graph.node(id);
           return ops::kWriteInBackward.is(node) &&
                  *node.operands()[0].get_if<ir::ValueId>() == input;
         });
}

/// Which tangents belong to each autograd node of a call, unless one node has them all.
std::vector<std::vector<bool>> tangents_of_parts(const std::vector<ir::TangentFacts>& tangents) {
  std::vector<std::vector<bool>> parts;
  if (std::ranges::all_of(tangents, [](const auto& one) { return one.part == 0; })) return parts;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i].part < 0) continue;
    const auto part = static_cast<size_t>(tangents[i].part);
    if (parts.size() <= part) parts.resize(part + 1, std::vector<bool>(tangents.size()));
    parts[part][i] = true;
  }
  std::erase_if(parts, [](const auto& part) { return !std::ranges::count(part, true); });
  return parts;
}

}  // namespace

runtime::Backward lower_backward(const runtime::Artifact& artifact, const ir::Graph& whole,
                                 const std::vector<bool>& defined, Backend& backend) {
  runtime::Backward backward{.defined = defined};
  if (!all(defined)) {
    backward.graph = partition::drop_tangents(whole, defined, artifact.split.signature.effects);
  } else if (partition::has_arrival_marks(whole)) {
    backward.graph = whole;
    partition::drop_arrival_marks(*backward.graph);
  } else if (&whole != &artifact.split.backward) {
    backward.graph = whole;
  }
  const ir::Graph& graph = backward.graph ? *backward.graph : whole;
  backward.kernels.ready = backend.compile(graph, backward_context(artifact));
  for (ir::ValueId input : graph.inputs()) {
    if (graph.input_role(input).role != ir::Role::Saved) continue;
    const bool used = graph.value(input).has_users();
    const bool only_written = used && is_only_written(graph, input);
    backward.reads.push_back(used && !only_written);
    backward.writes.push_back(only_written);
  }
  return backward;
}

runtime::Artifact lower(runtime::Artifact artifact, Backend& backend, StageLog& log) {
  const ir::Signature& signature = artifact.split.signature;
  const auto add = [&](const std::vector<bool>& defined) {
    artifact.backwards.push_back(
        lower_backward(artifact, artifact.split.backward, defined, backend));
  };
  log.time("lower", [&] {
    artifact.forward.ready = backend.compile(artifact.split.forward, forward_context(artifact));
    if (!signature.training) return;
    add(std::vector<bool>(signature.tangents.size(), true));
    for (const std::vector<bool>& part : tangents_of_parts(signature.tangents)) add(part);
  });
  log.dump("forward", *artifact.forward.ready);
  if (signature.training) log.dump("backward", *artifact.backwards.front().kernels.ready);
  return artifact;
}

}  // namespace tandem::pipeline
