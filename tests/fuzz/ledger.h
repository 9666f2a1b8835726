#pragma once

#include "fuzz/coverage.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tandem::fuzz {

/// Sums over all runs that used the same file, and which seeds are done.
class Ledger {
 public:
  /// Reads the file if it exists. A line that cannot be read is an error: sums would be wrong.
  void load(const std::filesystem::path& path);
  /// Writes beside the file and renames.
  void save(const std::filesystem::path& path) const;

  bool is_done(uint64_t seed) const;
  void add_done(uint64_t seed);
  /// How many programs are done.
  uint64_t done() const;

  std::map<std::string, int64_t> sums{};      // passed, refused, failed, crashed, ...
  std::map<std::string, int64_t> refusals{};  // by reason
  std::map<uint64_t, std::string> failures{};
  Coverage coverage{};

 private:
  std::map<uint64_t, uint64_t> ranges_{};  // first seed of a range -> last
};

}  // namespace tandem::fuzz
