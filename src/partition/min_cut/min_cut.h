#pragma once

#include "partition/min_cut/cut_graph.h"
#include "tandem/stages.h"

namespace tandem::partition {

/// Cuts where the fewest bytes cross. What `can_fuse` names the backward may compute again.
Split cut_at_minimum(const Joint& joint, const CanFuse& can_fuse);

}  // namespace tandem::partition
