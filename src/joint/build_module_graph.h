#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <optional>
#include <string>
#include <vector>

namespace tandem::joint {

/// A tensor that a module registers, and what the graph calls it.
struct ModuleTensor {
  at::Tensor tensor;
  ir::Descriptor role;
};

struct ModuleForm {
  std::vector<ModuleTensor> state{};     // parameters, then buffers, each tensor once
  std::optional<int64_t> loss_output{};  // where the backward starts; none: forward only
};

/// Closes the recording of a module's forward into a graph that stands by itself. Inputs: the state
/// in the order of the form, whether the forward used it or not, then the arguments. Outputs: new
/// data of written inputs, every result as a value, and one gradient of the loss per input that
/// requires grad, `none` where nothing flows.
ir::Graph build_module_graph(tracing::Trace& trace, const ir::Signature& signature,
                             const ModuleForm& form, std::string name);

}  // namespace tandem::joint
