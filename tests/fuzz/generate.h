#pragma once

#include "fuzz/program.h"

#include <cstdint>

namespace tandem::fuzz {

struct GenerateOptions {
  bool second_order = true;  // such programs may be drawn
  PatternSet patterns{};     // those that are switched on
};

/// The backend rounds, but in the ops of this program every backend promises eager's bits.
bool is_judged_by_bits(const ProgramSpec& program);

/// The program of a seed: the same on every machine.
/// On a backend that rounds in its own way (TANDEM_BACKEND=llvm), no discontinuous op meets a value
/// whose bits are not promised.
ProgramSpec generate(uint64_t seed, const GenerateOptions& options);

}  // namespace tandem::fuzz
