#include "fuzz/ledger.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tandem::fuzz {
namespace {
constexpr const char* kHeader = "tandem fuzz ledger 1";
}

void Ledger::load(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return;
  std::string line;
  const auto broken = [&] {
    throw std::runtime_error("fuzz: " + path.string() + " is not a ledger: " + line +
                             "\n  remedy: name another file, or remove it and begin again");
  };
  if (!std::getline(file, line) || line != kHeader) broken();
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind, rest;
    words >> kind;
    if (kind == "done") {
      uint64_t first = 0, last = 0;
      if (!(words >> first >> last)) broken();
      ranges_[first] = last;
    } else if (kind == "sum") {
      int64_t count = 0;
      if (!(words >> rest >> count)) broken();
      sums[rest] = count;
    } else if (kind == "refused") {
      int64_t count = 0;
      if (!(words >> count)) broken();
      std::getline(words >> std::ws, rest);
      refusals[rest] = count;
    } else if (kind == "failure") {
      uint64_t seed = 0;
      if (!(words >> seed)) broken();
      std::getline(words >> std::ws, rest);
      failures[seed] = rest;
    } else if (kind == "drawn") {
      int company = 0;
      int64_t count = 0;
      if (!(words >> rest >> company >> count)) broken();
      coverage.add(rest, company, count);
    } else {
      broken();
    }
  }
}

void Ledger::save(const std::filesystem::path& path) const {
  const std::filesystem::path beside = path.string() + ".new";
  {
    std::ofstream file(beside);
    file << kHeader << '\n';
    for (const auto& [first, last] : ranges_) file << "done " << first << ' ' << last << '\n';
    for (const auto& [name, count] : sums) file << "sum " << name << ' ' << count << '\n';
    for (const auto& [reason, count] : refusals) {
      file << "refused " << count << ' ' << reason << '\n';
    }
    for (const auto& [seed, text] : failures) file << "failure " << seed << ' ' << text << '\n';
    for (const auto& [pair, count] : coverage.counts()) {
      file << "drawn " << pair.first << ' ' << pair.second << ' ' << count << '\n';
    }
    if (!file.flush()) throw std::runtime_error("fuzz: cannot write " + beside.string());
  }
  std::filesystem::rename(beside, path);
}

bool Ledger::is_done(uint64_t seed) const {
  auto after = ranges_.upper_bound(seed);
  if (after == ranges_.begin()) return false;
  --after;
  return seed <= after->second;
}

void Ledger::add_done(uint64_t seed) {
  if (is_done(seed)) return;
  uint64_t first = seed, last = seed;
  auto after = ranges_.upper_bound(seed);
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->second + 1 == seed) first = before->first;
  }
  if (after != ranges_.end() && after->first == seed + 1) {
    last = after->second;
    ranges_.erase(after);
  }
  ranges_[first] = last;
}

uint64_t Ledger::done() const {
  uint64_t total = 0;
  for (const auto& [first, last] : ranges_) total += last - first + 1;
  return total;
}

}  // namespace tandem::fuzz
