#pragma once

#include "tandem/ir/graph.h"
#include "tandem/stages.h"

#include <string>
#include <vector>

namespace tandem::partition {

/// A value of the joint graph that crosses from forward to backward.
struct SavedValue {
  ir::ValueId value = ir::kNoValue;
  std::string why;
  Saved::How how{};

  bool is_copy() const { return how.as == Saved::As::Copy; }
};

/// What the backward nodes of a joint graph read of the forward: inputs first, in their order, then
/// results of nodes, in theirs.
///
/// Views of inputs are made again from the input: saved by reference it gets eager's version check
/// at run time, which a hidden view of it would escape. A view of a value that is saved anyway is
/// made again too, as is whatever comes from a constant.
std::vector<SavedValue> saved_values(const ir::Graph& joint);

/// Whether the backward may run a forward node once more: constants, and views that read nothing
/// but their base.
bool is_repeatable(const ir::Node& node);

/// Fixes the names under which the joint prints the saved values: both halves then print them
/// alike.
void name_saved_values(ir::Graph& joint, const std::vector<SavedValue>& saved);

/// For people: name, bytes and reason; the source line only if nothing has to be looked up for it.
Saved describe(const ir::Graph& joint, const SavedValue& saved);

/// `aten.mul.Tensor`, as the graph text has it; of a region its label.
std::string op_name(const ir::Node& node);

/// What a split saves and what it computes again, with source lines.
std::vector<Saved> saved_with_lines(const Split& split);
std::vector<Recomputed> recomputed_with_lines(const Split& split);

}  // namespace tandem::partition
