#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Shortens what writes through views leave behind when they are turned into functions, and copies
/// there and back:
///
/// - `copy(old, new)` reads nothing of `old`: a copy of `new`;
/// - a part that is read out of the tensor that it was just put into, or beside which something was
///   put; a part that is put back where it came from, or over a part that was put there before;
/// - `cat` of all the pieces of a `split`, the pieces of a `cat`;
/// - a cast to a wider dtype and back, or on to one that is wider still; a sign changed twice.
///
/// Expects a functional graph, with equal views merged. Copies go only where nobody could tell them
/// from the original (MemoryFacts); every dependence on a tangent stays.
PassResult remove_round_trips(ir::Graph& graph);

}  // namespace tandem::passes
