#pragma once

#include "loops/ir/loop_ir.h"

#include <cstdint>
#include <vector>

namespace tandem::loops {

/// Gives a kernel its dims. Its accesses have one stride per loop, in the order of `extents`; they
/// leave with one per dim. Kept loops come first; within each group the loops with the larger
/// strides are outside, as most accesses have it, and neighbours that every access walks as one
/// become one.
void order_loops(Kernel& kernel, const std::vector<int64_t>& extents,
                 const std::vector<bool>& reduced);

}  // namespace tandem::loops
