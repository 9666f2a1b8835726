#pragma once

#include "fuzz/program.h"

#include <cstdint>

namespace tandem::fuzz {

/// The program of a seed: the same on every machine. `second_order`: such programs may be drawn.
ProgramSpec generate(uint64_t seed, bool second_order);

}  // namespace tandem::fuzz
