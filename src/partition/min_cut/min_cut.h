#pragma once

#include "partition/min_cut/recompute_rules.h"
#include "tandem/stages.h"

namespace tandem::partition {

/// Cuts where the fewest bytes cross, with what the backward may compute again.
Split cut_at_minimum(const Joint& joint, Recompute recompute);

}  // namespace tandem::partition
