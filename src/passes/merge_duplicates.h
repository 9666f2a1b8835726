#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Keeps the first of several calls of one op with equal operands and result types, and the first
/// of several constants with equal bytes.
///
/// Keeps every random draw, effect and write, and never merges across a write. Tensors that the
/// caller receives, and those that some op writes to, stay apart: merging them would make two of
/// them share memory. A backward node may give way to an equal forward node, never the other way
/// round.
PassResult merge_duplicates(ir::Graph& graph);

}  // namespace tandem::passes
