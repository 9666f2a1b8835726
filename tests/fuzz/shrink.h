#pragma once

#include "fuzz/program.h"

#include <functional>

namespace tandem::fuzz {

/// The smallest program found that still fails: fewer statements, results, parameters, modes. The
/// question is asked many times; it must answer false for a program that eager cannot run.
ProgramSpec shrink(const ProgramSpec& program,
                   const std::function<bool(const ProgramSpec&)>& still_fails);

}  // namespace tandem::fuzz
