#pragma once

#include "fuzz/op.h"

#include <array>
#include <cstddef>
#include <vector>

namespace tandem::fuzz {

/// Ops by what they exercise: a program draws a weight for each kind, so that some programs are
/// nearly all views and writes, others nearly all layers.
enum Kind : size_t { Pointwise, Reduction, Layer, Draw, View, Copy, Write, Autograd, kKinds };

const std::array<std::vector<const Op*>, kKinds>& ops_by_kind();

}  // namespace tandem::fuzz
