#pragma once

#include "fuzz/check.h"
#include "fuzz/program.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::fuzz {

/// The program shrunk as far as it fails in the same way, in this process.
ProgramSpec shrink_failure(const ProgramSpec& program, const Verdict& verdict);

/// The program shrunk as far as it kills its process; every try is a process.
ProgramSpec shrink_crash(const ProgramSpec& program);

/// Writes `seed-N/` with program.cpp, graph.txt (what the compiled form recorded) and why.txt.
void write_failure(const std::filesystem::path& folder, const ProgramSpec& program,
                   const std::vector<std::string>& why, bool with_graph);

}  // namespace tandem::fuzz
