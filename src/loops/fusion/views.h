#pragma once

#include "tandem/ir/graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::loops {

/// How the dims of a view come from those of what it shows.
enum class ViewShape : uint8_t {
  Permuted,  // dim i of the view is dim order[i]; a new dim of size 1: -1
  Expanded,  // dims of size 1 repeat; new ones in front
  Reshaped,  // the same elements in row-major order
  Picked,    // some of the elements: only memory can be read through it
};

/// One view op, as far as index arithmetic can stand for it.
struct ViewStep {
  ViewShape shape = ViewShape::Picked;
  std::vector<int64_t> order{};  // of Permuted
  int64_t offset = 0;            // of the first element, in elements, from operand 0's first
};

/// Where a value lies: in the memory of `root`, its first element `offset` elements behind root's
/// first. Its strides are those of its type.
struct Address {
  ir::ValueId root = ir::kNoValue;
  int64_t offset = 0;
};

/// What lies behind the views of a chain. `picks`: some view on the way picks elements, and the
/// value is what they are picked from; otherwise the views only renumber the elements.
struct ViewSource {
  ir::ValueId value = ir::kNoValue;
  bool picks = false;
};

/// The views of a graph, read once.
class Views {
 public:
  /// Sizes must be constant.
  explicit Views(const ir::Graph& graph);

  /// Null for what is no view, or one that only libtorch can make.
  const ViewStep* step(ir::ValueId id) const {
    const auto& known = steps_[static_cast<size_t>(id)];
    return known.has_value() ? &*known : nullptr;
  }
  /// Whether every result of a node is such a view: it takes no work at run time.
  bool is_folded(const ir::Node& node) const;
  /// What a view is taken of.
  ir::ValueId source(ir::ValueId view) const;
  ViewSource behind(ir::ValueId id) const { return sources_[static_cast<size_t>(id)]; }
  const Address& address(ir::ValueId id) const { return addresses_[static_cast<size_t>(id)]; }
  /// A tangent in the strides of expand(), or a view of one. No copy can be laid out like that, so
  /// it comes in whatever strides it has: no kernel may read it, and only libtorch makes views of
  /// it.
  bool is_loose(ir::ValueId id) const { return loose_[static_cast<size_t>(id)]; }

 private:
  const ir::Graph& graph_;
  std::vector<std::optional<ViewStep>> steps_;
  std::vector<ViewSource> sources_;
  std::vector<Address> addresses_;
  std::vector<bool> loose_;
};

}  // namespace tandem::loops
