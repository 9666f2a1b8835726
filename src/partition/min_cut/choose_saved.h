#pragma once

#include "partition/min_cut/cut_graph.h"
#include "partition/saved_values.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tandem/stages.h"

#include <vector>

namespace tandem::partition {

/// The minimum cut between what only the forward can make and what only the backward can: the
/// values that cross it, inputs first, then results of nodes, in graph order. A value that can
/// neither be kept nor computed again is an UnsupportedError with the path to the backward.
std::vector<ir::ValueId> minimum_crossing(const ir::Graph& joint, const ir::Signature& signature,
                                          const CutGraph& graph);

/// What to keep so that the backward has the values of the minimum cut, and why.
///
/// What the recorded backward reads is kept as eager keeps it: by reference, with eager's version
/// check. An argument or a result that only recomputation reads could be written without eager
/// noticing: it is kept as a copy. Parameters are kept by reference.
std::vector<SavedValue> choose_saved(const ir::Graph& joint, const ir::Signature& signature,
                                     const CutGraph& graph);

/// What both halves of a split compute, in the order of the backward.
std::vector<Recomputed> recomputed_values(const ir::Graph& joint, const Split& split);

}  // namespace tandem::partition
