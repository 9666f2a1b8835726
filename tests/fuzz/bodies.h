#pragma once

#include "fuzz/draft.h"

namespace tandem::fuzz {

/// Draws the statements of the function, runs them on the variables, and chooses what it returns.
void make_function(Draft& draft, Function& function, Tensors& live, int64_t size);

/// Ops and writes on what the caller holds after the call: the first variables, and results.
void make_further(Draft& draft, size_t arguments, const Tensors& after);

}  // namespace tandem::fuzz
