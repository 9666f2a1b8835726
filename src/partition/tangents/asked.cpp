#include "partition/tangents/asked.h"

#include <cstddef>
#include <cstdint>

namespace tandem::partition {
namespace {

using Links = std::vector<std::vector<int64_t>>;

/// Everything that can be reached from what is marked.
void spread(std::vector<bool>& marked, const Links& links) {
  std::vector<size_t> open;
  for (size_t i = 0; i < marked.size(); ++i) {
    if (marked[i]) open.push_back(i);
  }
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    for (int64_t next : links[at]) {
      const auto i = static_cast<size_t>(next);
      if (marked[i]) continue;
      marked[i] = true;
      open.push_back(i);
    }
  }
}

bool any_of(const std::vector<int64_t>& indices, const std::vector<bool>& flags) {
  for (int64_t index : indices) {
    if (flags[static_cast<size_t>(index)]) return true;
  }
  return false;
}

}  // namespace

std::vector<bool> formulas_run(const ir::Signature& signature, const Asked& asked) {
  const std::vector<ir::FormulaFacts>& formulas = signature.formulas;
  std::vector<bool> reached(formulas.size());
  Links next(formulas.size()), before(formulas.size());
  for (size_t i = 0; i < formulas.size(); ++i) {
    reached[i] = any_of(formulas[i].tangents, asked.defined);
    next[i] = formulas[i].next;
    for (int64_t to : formulas[i].next)
      before[static_cast<size_t>(to)].push_back(static_cast<int64_t>(i));
  }
  spread(reached, next);
  if (asked.wanted.empty()) return reached;
  std::vector<bool> leads_on(formulas.size());
  for (size_t i = 0; i < formulas.size(); ++i)
    leads_on[i] = any_of(formulas[i].gradients, asked.wanted);
  spread(leads_on, before);
  for (size_t i = 0; i < formulas.size(); ++i) reached[i] = reached[i] && leads_on[i];
  return reached;
}

}  // namespace tandem::partition
