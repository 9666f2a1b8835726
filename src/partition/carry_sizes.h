#pragma once

#include "tandem/stages.h"

namespace tandem::partition {

/// Sizes that depend on data are known when the forward has run. Those that the backward mentions
/// go there with tensors without elements, which have them as a size. Nothing else that is saved
/// needs to be there in every backward.
void carry_sizes(Split& split);

}  // namespace tandem::partition
