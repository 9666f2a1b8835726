#pragma once

#include "tandem/stages.h"

namespace tandem::joint {

/// Fills what InputFacts says of the backward (read_by_backward, viewed_by_backward and
/// read_by_gradients), from the graph as it was recorded. Later the facts would not show: the
/// clean-up may replace what the backward computes from an input by a forward value. And a
/// decomposition may leave out an input whose derivative is zero, though eager has a gradient for
/// it.
void note_inputs_read(Joint& joint);

}  // namespace tandem::joint
