#pragma once

#include "tandem/ir/type.h"

#include <cstdint>

namespace tandem::ir {

/// Of dtype, device, layout and rank.
uint64_t shape_free_hash(const TensorType& type);

}  // namespace tandem::ir
