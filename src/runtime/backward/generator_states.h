#pragma once

#include "tandem/ir/graph.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace tandem::runtime {

/// Where the generators that a graph draws from stand: the default ones of its devices, and those
/// that the function named.
class GeneratorStates {
 public:
  explicit GeneratorStates(const ir::Graph& graph);
  /// Somebody has drawn from one of them since, or set it.
  bool have_moved() const;
  void restore() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace tandem::runtime
