#pragma once

#include "fuzz/generate.h"
#include "fuzz/ledger.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::fuzz {

struct RunOptions {
  std::vector<uint64_t> seeds{};  // those that are not done yet
  int jobs = 1;
  GenerateOptions programs{};
  double time_limit_s = 0;           // 0: none
  std::filesystem::path ledger{};    // empty: none is kept
  std::filesystem::path failures{};  // where failing programs are written
  bool first_failure = false;        // stop at the first that fails, and leave it as it is
  bool quiet = false;                // no progress line
};

/// Runs the programs in processes of their own, so that a crash costs one program: it is reported
/// with its seed, and the rest goes on. Failing programs are shrunk and written to a folder each.
void run_programs(const RunOptions& options, Ledger& ledger);

/// Generates and checks one program in this process, shrinks it if it fails, and prints all.
bool run_one(uint64_t seed, const GenerateOptions& options, const std::filesystem::path& failures);

}  // namespace tandem::fuzz
