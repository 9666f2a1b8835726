#pragma once

#include "partition/saved_values.h"
#include "tandem/ir/graph.h"

#include <span>

namespace tandem::partition {

/// Whether there is anything for a backward to do.
bool has_backward(const ir::Graph& joint);

/// The half that computes the results and the saved values. Inputs: those of the joint without
/// tangents. Outputs: `mutated`, `output`, `base`, then `saved`. Draws and effects of the forward
/// stay, read or not. Ids mean what they mean in the joint.
ir::Graph forward_half(const ir::Graph& joint, std::span<const SavedValue> saved);

/// The half that computes the gradients from saved values and tangents. Draws and effects of the
/// forward are gone. Its other nodes stay where they are read, which `may_repeat` must allow.
ir::Graph backward_half(const ir::Graph& joint, std::span<const SavedValue> saved,
                        bool (*may_repeat)(const ir::Node&));

}  // namespace tandem::partition
