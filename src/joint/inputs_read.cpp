#include "joint/inputs_read.h"

#include "ops/memory/memory_roots.h"
#include "ops/reads.h"

#include <vector>

namespace tandem::joint {

void note_inputs_read(Joint& joint) {
  const std::vector<ir::ValueId> roots = ops::memory_roots(joint.graph);
  std::vector<bool> read(joint.graph.value_limit(), false);
  ops::for_each_backward_read(joint.graph, [&](ir::ValueId id) {
    read[static_cast<size_t>(roots[static_cast<size_t>(id)])] = true;
  });
  const std::vector<bool> by_gradients =
      ops::read_by_gradients(joint.graph, ops::Draws::DoNotCount);
  for (size_t i = 0; i < joint.signature.inputs.size(); ++i) {
    ir::InputFacts& facts = joint.signature.inputs[i];
    facts.read_by_backward = read[static_cast<size_t>(joint.graph.inputs()[i])];
    facts.read_by_gradients = by_gradients[i];
  }
}

}  // namespace tandem::joint
