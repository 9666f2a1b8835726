#pragma once

#include "tandem/export.h"
#include "tandem/function.h"
#include "tandem/ir/graph.h"

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem {

/// Where the tensors of a module are in its exported graph: positions among the inputs or the
/// outputs of the graph, by name. A tied tensor is one input that has several names; a user input
/// is named by its place among the tensors of the arguments.
struct TANDEM_API ModuleSignature {
  // inputs of the graph: all parameters, all buffers, then the arguments, used or not
  std::map<std::string, int64_t> parameters{};
  std::map<std::string, int64_t> buffers{};
  std::map<int64_t, int64_t> user_inputs{};  // without undefined tensors

  // outputs of the graph: new data of what the call writes, the results, the gradients
  std::map<std::string, int64_t> mutated_parameters{};
  std::map<std::string, int64_t> mutated_buffers{};
  std::map<int64_t, int64_t> mutated_user_inputs{};
  std::vector<int64_t> user_outputs{};
  std::map<std::string, int64_t> gradients{};  // of parameters, and of buffers that require grad
  std::map<int64_t, int64_t> user_input_gradients{};
  std::optional<int64_t> loss_output{};  // of a joint graph
};

/// One line per name: `parameter "fc.weight"  input 0, gradient: output 2`.
TANDEM_API std::string to_string(const ModuleSignature& signature);
TANDEM_API std::ostream& operator<<(std::ostream& out, const ModuleSignature& signature);

/// `forward` of a module as one graph that anybody can run: no closure, no tangent, every input and
/// output with a name.
struct Exported {
  ir::Graph graph{};
  ModuleSignature signature{};
};

struct ExportOptions {
  bool joint = false;       // with the backward of one result, seeded with one
  int64_t loss_output = 0;  // which: its place among the tensors of the results
};

namespace detail {

/// `function` calls the module's forward.
TANDEM_API Exported export_module(const FlatFunction& function, const Flat& arguments,
                                  const torch::nn::Module& module, const ExportOptions& options);

}  // namespace detail

}  // namespace tandem
