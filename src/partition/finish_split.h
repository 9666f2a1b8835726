#pragma once

#include "tandem/ir/signature.h"
#include "tandem/options.h"
#include "tandem/stages.h"

#include <cstddef>

namespace tandem::partition {

/// The last step of partition, whoever made the cut: carries out in the forward what has been
/// decided about memory.
///
/// Decides how values are kept where the partitioner has left that open. Ends the forward with the
/// copies that are needed: of saved values that are kept as copies; of results in memory that is an
/// input's, a constant's or another result's; of new data in memory that another write overwrites.
/// With Mutations::in_graph a `copy_` to each input that the call writes and autograd does not see
/// written comes after them, in place of an output with the new data; nothing that can fail follows
/// the first of those. Other inputs are left to the call path.
///
/// A split that is finished stays as it is.
void finish_split(Split& split, Mutations mutations);

/// Whether the write to an input can be part of the graph.
bool writes_in_graph(const ir::Signature& signature, size_t input);

}  // namespace tandem::partition
