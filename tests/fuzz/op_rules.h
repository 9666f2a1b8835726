#pragma once

#include "fuzz/chooser.h"
#include "fuzz/draft.h"

/// Which ops, on which operands, a program may have.
namespace tandem::fuzz {

/// Whether the op may be the next one of the program, whatever its operands.
bool may_draw(Draft& draft, const Op& op);

/// Whether the statement may stand there. Asked before it runs.
bool may_run(Draft& draft, const Chooser& chooser, const Statement& statement);

/// Whether it is given values whose bits are not promised.
bool reads_inexact(const Draft& draft, const Chooser& chooser, const Statement& statement);

}  // namespace tandem::fuzz
