#pragma once

#include "tandem/ir/graph.h"

#include <string>
#include <vector>

namespace tandem::ir {

/// Keeps large constants out of the text. `append_reference` writes what stands for one: `@0:...`.
class ConstantStore {
 public:
  virtual ~ConstantStore() = default;
  virtual bool takes(const at::Tensor& constant) const = 0;
  virtual void append_reference(std::string& out, const at::Tensor& constant) = 0;
};

/// With a null store every constant is written inline.
void append_graph(std::string& out, const Graph& graph, ConstantStore* store);

/// One line; `names` are those of value_names, so that a caller with many nodes makes them once.
void append_node(std::string& out, const Graph& graph, const Node& node,
                 const std::vector<std::string>& names);

}  // namespace tandem::ir
