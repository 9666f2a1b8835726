#pragma once

#include "tandem/stages.h"

namespace tandem::joint {

/// Fills InputFacts::read_by_backward and read_by_gradients. Of the graph as it was recorded: the
/// clean-up may let a forward value take the place of what the backward computes from an input, and
/// a decomposition may leave out an input whose derivative is zero, of which eager's gradient is
/// defined.
void note_inputs_read(Joint& joint);

}  // namespace tandem::joint
