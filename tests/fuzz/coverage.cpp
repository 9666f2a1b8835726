#include "fuzz/coverage.h"

#include "fuzz/op.h"

#include <iomanip>
#include <set>

namespace tandem::fuzz {
namespace {

void add_pattern_ops(const Origin& origin, std::set<Coverage::Pair>& pairs) {
  for (const Statement& statement : origin.statements) {
    if (statement.op->only_in) {
      pairs.insert({std::string(statement.op->name), static_cast<int>(Company::Plain)});
    }
  }
}

void add_pairs(const std::vector<Statement>& statements, bool second_order,
               std::set<Coverage::Pair>& pairs) {
  for (const Statement& statement : statements) {
    add_pairs(statement.body, second_order, pairs);
    if (statement.op == nullptr) continue;
    const Op& op = *statement.op;
    const std::string name(op.name);
    const auto add = [&](Company company) { pairs.insert({name, static_cast<int>(company)}); };
    add(Company::Plain);
    if (statement.on_view) add(Company::View);
    if (op.has(kInPlace) || statement.on_written) add(Company::InPlace);
    if (op.has(kRandom) || statement.on_drawn) add(Company::Random);
    if (second_order && statement.requires_grad) add(Company::SecondOrder);
  }
}

/// Whether the pair makes sense at all.
bool can_be_drawn(const Op& op, Company company) {
  if (op.only_in) return company == Company::Plain;
  // Ops without operands stand alone; a factory has no gradient.
  const bool takes_tensors = op.text.find('x') != std::string_view::npos;
  switch (company) {
    case Company::Plain:
      return true;
    case Company::View:
      return takes_tensors;
    case Company::InPlace:
      return takes_tensors || op.has(kInPlace);
    case Company::Random:
      return takes_tensors || op.has(kRandom);
    case Company::SecondOrder:
      return takes_tensors && !op.has(kNoGradient) && !op.has(kToggle);
  }
  return false;
}

Coverage::Pair pair_of(ProgramPattern pattern) {
  return {"pattern." + std::string(name_of(pattern)), static_cast<int>(Company::Plain)};
}

}  // namespace

std::vector<Coverage::Pair> drawn_pairs(const ProgramSpec& program) {
  std::set<Coverage::Pair> pairs;
  add_pairs(program.function.statements, program.second_order, pairs);
  for (const Function& function : program.inner) {
    add_pairs(function.statements, program.second_order, pairs);
  }
  add_pairs(program.further.statements, false, pairs);
  add_pattern_ops(program.arguments, pairs);
  add_pattern_ops(program.closure, pairs);
  for (const ProgramPattern pattern : program.patterns) pairs.insert(pair_of(pattern));
  return {pairs.begin(), pairs.end()};
}

void Coverage::print(std::ostream& out, const PatternSet& on) const {
  const auto count = [&](const Op& op, size_t company) {
    const auto found = counts_.find({std::string(op.name), static_cast<int>(company)});
    return found == counts_.end() ? 0 : found->second;
  };
  out << std::left << std::setw(28) << "op";
  for (const char* company : kCompanies) out << std::right << std::setw(14) << company;
  out << '\n';
  std::string never;
  int64_t missing = 0;
  for (const Op& op : all_ops()) {
    if (op.only_in && !on.contains(*op.only_in)) continue;
    out << std::left << std::setw(28) << op.name << std::right;
    for (size_t company = 0; company < kCompanies.size(); ++company) {
      const bool possible = can_be_drawn(op, static_cast<Company>(company));
      const int64_t times = count(op, company);
      if (!possible && times == 0) {
        out << std::setw(14) << "-";
        continue;
      }
      out << std::setw(14) << times;
      if (times > 0) continue;
      ++missing;
      never += "  " + std::string(op.name) + " x " + kCompanies[company] + '\n';
    }
    out << '\n';
  }
  out << '\n'
      << std::left << std::setw(28) << "pattern" << std::right << std::setw(14) << "programs\n";
  for (const PatternRow& row : program_patterns()) {
    const auto found = counts_.find(pair_of(row.pattern));
    out << std::left << std::setw(28) << row.name << std::right << std::setw(13)
        << (found == counts_.end() ? 0 : found->second)
        << (on.contains(row.pattern) ? "  " : "  off: ") << row.summary << '\n';
  }
  out << '\n';
  out << "pairs never drawn: " << missing << '\n' << never;
}

}  // namespace tandem::fuzz
