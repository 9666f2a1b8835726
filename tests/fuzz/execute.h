#pragma once

#include "fuzz/chooser.h"
#include "fuzz/draft.h"

namespace tandem::fuzz {

/// Runs the statement on the live tensors, gives it results and notes what it has met. False: it is
/// not wanted, and nothing has happened. Throws Wild where it came to values that compare badly.
bool execute(Draft& draft, Chooser& chooser, Statement& statement);

}  // namespace tandem::fuzz
