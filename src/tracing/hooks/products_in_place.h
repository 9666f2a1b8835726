#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// Rows for products in place of a tensor and a number. In place, eager's kernel has the number on
// the left, and there rounds it to 16 bits where the tensor has 16.

/// Behind the call, so that one which raises leaves nothing.
void note_product(BoxedCall& call, std::any& left);
/// The number of what an in-place product has become.
std::any round_number(BoxedCall& call);
/// The same for each tensor of a list, in its own dtype.
bool multiply_one_by_one(BoxedCall& call);

}  // namespace tandem::tracing
