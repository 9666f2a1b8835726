#pragma once

#include "fuzz/program.h"

#include <string>
#include <vector>

namespace tandem::fuzz {

/// The program as one C++ file that needs tandem only: it runs eagerly and compiled, compares
/// results, arguments and gradients, and returns 1 if they differ.
std::string write_program(const ProgramSpec& program, const std::vector<std::string>& why);

}  // namespace tandem::fuzz
