#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Computes at compile time what depends on no input.
///
/// Small tensors (up to 16 KiB) that follow from constants and factories (`arange`, `full`, masks
/// made of them) become constants, by libtorch's own kernels. Of larger ones that hold one number
/// all over, such as `ones([n]) * 2`, the computation becomes one `full`; only by ops that round
/// the same wherever an element lies.
///
/// Keeps random draws and effects, ops of other libraries, what the caller receives or somebody
/// writes to, and what depends on a tangent, be it on its sizes only.
PassResult fold_constants(ir::Graph& graph);

}  // namespace tandem::passes
