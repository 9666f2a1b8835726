#include "joint/inputs_read.h"

#include "ops/memory/memory_roots.h"
#include "ops/reads.h"

#include <vector>

namespace tandem::joint {

void note_inputs_read(Joint& joint) {
  const std::vector<ir::ValueId> roots = ops::memory_roots(joint.graph);
  std::vector<bool> read(joint.graph.value_limit(), false), viewed = read;
  ops::for_each_backward_read(joint.graph, [&](ir::ValueId id) {
    const auto root = static_cast<size_t>(roots[static_cast<size_t>(id)]);
    read[root] = true;
    const ir::NodeId producer = joint.graph.value(id).producer();
    if (producer != ir::kNoNode && joint.graph.node(producer).phase() == ir::Phase::Forward)
      viewed[root] = true;
  });
  const std::vector<bool> by_gradients =
      ops::read_by_gradients(joint.graph, ops::Draws::DoNotCount);
  for (size_t i = 0; i < joint.signature.inputs.size(); ++i) {
    ir::InputFacts& facts = joint.signature.inputs[i];
    facts.read_by_backward = read[static_cast<size_t>(joint.graph.inputs()[i])];
    facts.viewed_by_backward = viewed[static_cast<size_t>(joint.graph.inputs()[i])];
    facts.read_by_gradients = by_gradients[i];
  }
}

}  // namespace tandem::joint
