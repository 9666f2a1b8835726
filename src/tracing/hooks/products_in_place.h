#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// The number of an in-place product with 16-bit floats, which eager's kernel rounds to 16 bits.

/// Behind the call, so that one which raises leaves nothing: what follows is to be in place.
void note_product(BoxedCall& call, std::any& left);
/// Before the out-of-place form that functionalization calls for it.
std::any round_number(BoxedCall& call);
/// In place of that of a list: each tensor has a dtype of its own.
bool multiply_one_by_one(BoxedCall& call);

}  // namespace tandem::tracing
