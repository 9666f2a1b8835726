#pragma once

#include "fuzz/program.h"

#include <array>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tandem::fuzz {

/// In what company an op was drawn.
enum class Company { Plain, View, InPlace, Random, SecondOrder };
inline constexpr std::array kCompanies = {"plain", "view", "in-place", "random", "second order"};

/// Op and company, with how often. Plain: every time. View: an operand is a view. In-place: it
/// writes, or an operand has been written. Random: it draws, or an operand comes from a draw.
/// Second order: it is differentiated twice.
class Coverage {
 public:
  using Pair = std::pair<std::string, int>;
  void add(const std::string& op, int company, int64_t count) { counts_[{op, company}] += count; }
  const std::map<Pair, int64_t>& counts() const { return counts_; }

  /// The tables of ops and of program patterns, and the pairs that were never drawn.
  void print(std::ostream& out, const PatternSet& on) const;

 private:
  std::map<Pair, int64_t> counts_{};
};

/// The pairs of one program, each once; its patterns count as ops of plain company.
std::vector<Coverage::Pair> drawn_pairs(const ProgramSpec& program);

}  // namespace tandem::fuzz
