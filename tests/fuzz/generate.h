#pragma once

#include "fuzz/program.h"

#include <cstdint>

namespace tandem::fuzz {

/// The program of a seed: the same on every machine. `second_order`: such programs may be drawn.
/// On a backend that rounds in its own way (TANDEM_BACKEND=llvm), no discontinuous op meets a value
/// whose bits are not promised.
ProgramSpec generate(uint64_t seed, bool second_order);

}  // namespace tandem::fuzz
