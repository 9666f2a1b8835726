#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <vector>

namespace tandem::partition {

/// The backward for calls in which only some tangents are defined, one flag per tangent of the
/// signature.
///
/// Formulas of libtorch are linear in their gradients, so what depends on undefined ones only is
/// zero: it is dropped from sums, written out as zeros where another op needs it, and a gradient
/// that depends on no defined tangent becomes `none`, as in eager. At the borders of formulas that
/// need not be linear the recording has marks (ops/own/arrives.h): they say where zeros are data,
/// which branch is taken and what arrives. Undefined tangents stay inputs that nobody reads, so no
/// position moves. `effects`, those of the signature, say which draws and effects eager's backward
/// gets to; without them all stay. Throws what eager raises where a formula does without some of
/// its gradients.
ir::Graph drop_tangents(const ir::Graph& backward, const std::vector<bool>& defined,
                        const std::vector<ir::EffectFacts>& effects = {});

/// In a backward all of whose tangents are defined the marks are taken out.
bool has_arrival_marks(const ir::Graph& graph);
void drop_arrival_marks(ir::Graph& graph);

}  // namespace tandem::partition
