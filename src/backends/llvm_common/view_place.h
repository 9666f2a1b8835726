#pragma once

#include "tandem/ir/graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::backends::llvm_common {

/// How the dims of a view come from those of what it shows.
enum class ViewShape : uint8_t {
  Permuted,  // dim i of the view is dim order[i]; a new dim of size 1: -1
  Expanded,  // dims of size 1 repeat; new ones in front
  Reshaped,  // the same elements in row-major order
  Cut,       // some of the elements: only memory can be read through it
};

/// One view op, as far as index arithmetic can stand for it.
struct ViewStep {
  ViewShape shape = ViewShape::Cut;
  std::vector<int64_t> order{};  // of Permuted
  int64_t offset = 0;            // of the first element, in elements, from operand 0's first
};

/// Nullopt for what is no view, or one that only libtorch can make. Sizes must be constant.
std::optional<ViewStep> view_step(const ir::Graph& graph, const ir::Node& node,
                                  int64_t result_index);

/// Where a value lies: in the memory of `root`, its first element `offset` elements behind root's
/// first. Its strides are those of its type.
struct Place {
  ir::ValueId root = ir::kNoValue;
  int64_t offset = 0;
};

/// Indexed by ValueId.
std::vector<Place> places(const ir::Graph& graph);

}  // namespace tandem::backends::llvm_common
