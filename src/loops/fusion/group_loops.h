#pragma once

#include "loops/fusion/fuse.h"
#include "loops/fusion/reading.h"

#include <c10/util/FunctionRef.h>

#include <optional>
#include <vector>

namespace tandem::loops {

/// At which loops of a group a value is computed or read.
class GroupLoops {
 public:
  GroupLoops(const ir::Graph& graph, const Views& views) : graph_(graph), views_(views) {}

  /// Of a value of the group, or of a view of one that only renumbers elements; nullopt if the
  /// group has no loops for it. The group remembers the answer.
  std::optional<DimLoops> of(KernelGroup& group, ir::ValueId id) const;

  /// Of a new value of this type, from what is known of the values that it is computed from;
  /// nullopt if the group has no loops for it. `is_inside`: whether the group computes a value.
  std::optional<DimLoops> fit(KernelGroup& group, const ir::TensorType& type,
                              const std::vector<Reading>& reads,
                              c10::function_ref<bool(ir::ValueId)> is_inside) const;

 private:
  const ir::TensorType& type_of(ir::ValueId id) const { return *graph_.value(id).tensor_type(); }

  const ir::Graph& graph_;
  const Views& views_;
};

/// Of the result of a reduction whose operand has these loops: the reduced dims are gone or of size
/// 1.
DimLoops reduced_loops(const Call& call, const Rule& rule, const DimLoops& loops,
                       const ir::TensorType& result);

}  // namespace tandem::loops
