#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <vector>

namespace tandem::partition {

/// The backward for calls in which only some tangents are defined, one flag per tangent of the
/// signature.
///
/// The backward is linear in its tangents, so what depends on undefined ones only is zero: it is
/// dropped from sums, written out as zeros where another op needs it, and a gradient that depends
/// on no defined tangent becomes `none`, as in eager. Undefined tangents stay inputs that nobody
/// reads, so no position moves. `effects`, those of the signature, say which draws and effects
/// eager's backward gets to; without them all stay.
ir::Graph drop_tangents(const ir::Graph& backward, const std::vector<bool>& defined,
                        const std::vector<ir::EffectFacts>& effects = {});

/// Marks (`tandem::arrives`) say on which tangents a gradient depends where its data does not. In a
/// backward all of whose tangents are defined they are taken out.
bool has_arrival_marks(const ir::Graph& graph);
void drop_arrival_marks(ir::Graph& graph);

}  // namespace tandem::partition
