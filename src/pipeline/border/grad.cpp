#include "tandem/grad.h"

#include "tracing/gradients/trace_engine.h"

namespace tandem {

std::vector<at::Tensor> grad(const std::vector<at::Tensor>& outputs,
                             const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& grad_outputs,
                             std::optional<bool> retain_graph, bool create_graph,
                             bool allow_unused) {
  return tracing::gradients({.outputs = outputs,
                             .inputs = inputs,
                             .grad_outputs = grad_outputs,
                             .retain_graph = retain_graph,
                             .create_graph = create_graph,
                             .allow_unused = allow_unused});
}

}  // namespace tandem
