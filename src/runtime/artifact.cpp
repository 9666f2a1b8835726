#include "runtime/artifact.h"

namespace tandem::runtime {

CompileContext forward_context(const Artifact& artifact) {
  const Split& split = artifact.split;
  CompileContext context;
  context.rounding = artifact.allowed.rounding;
  context.random = artifact.allowed.random;
  context.sizes_vary = artifact.sizes_vary;
  context.role = split.signature.training ? GraphRole::forward : GraphRole::inference;
  const size_t inputs = split.forward.inputs().size();
  for (size_t i = 0; i < inputs; ++i) {
    context.static_inputs.push_back(i < static_cast<size_t>(split.signature.lifted_count));
  }
  context.releasable_inputs.assign(inputs, false);
  return context;
}

CompileContext backward_context(const Artifact& artifact) {
  CompileContext context;
  context.rounding = artifact.allowed.rounding;
  context.random = artifact.allowed.random;
  context.sizes_vary = artifact.sizes_vary;
  context.role = GraphRole::backward;
  const size_t inputs = artifact.split.backward.inputs().size();
  context.static_inputs.assign(inputs, false);
  // The node hands over handles of its own: resetting them frees what nobody else holds.
  context.releasable_inputs.assign(inputs, true);
  return context;
}

}  // namespace tandem::runtime
