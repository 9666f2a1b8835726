#pragma once

#include "partition/tangents/asked.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

namespace tandem::partition {

/// The backward for calls in which only some tangents are defined, or only some gradients wanted.
///
/// Formulas of libtorch are linear in their gradients, so what depends on undefined ones only is
/// zero: it is dropped from sums, written out as zeros where another op needs it, and a gradient
/// that depends on no defined tangent becomes `none`, as in eager. At the borders of formulas that
/// need not be linear the recording has marks (ops/own/arrives.h): they say where zeros are data,
/// which branch is taken and what arrives. Undefined tangents stay inputs that nobody reads, so no
/// position moves; gradients that nobody wants become `none`. The signature says which draws,
/// effects and writes eager's backward gets to; one without formulas leaves all of them. Throws
/// what eager raises where a formula does without some of its gradients.
ir::Graph drop_tangents(const ir::Graph& backward, const Asked& asked,
                        const ir::Signature& signature = {});

/// In a backward that is asked for everything the marks are taken out.
bool has_arrival_marks(const ir::Graph& graph);
void drop_arrival_marks(ir::Graph& graph);

}  // namespace tandem::partition
