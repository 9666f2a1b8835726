#pragma once

#include "tandem/ir/operand.h"

#include <algorithm>
#include <span>
#include <vector>

namespace tandem::joint {

/// Some of the roots of a backward.
using RootSet = std::vector<bool>;

inline bool any(const RootSet& set) { return std::ranges::find(set, true) != set.end(); }

inline void add(RootSet& to, const RootSet& set) {
  if (to.size() < set.size()) to.resize(set.size());
  for (size_t i = 0; i < set.size(); ++i) to[i] = to[i] || set[i];
}

inline RootSet without(RootSet set, const RootSet& others) {
  for (size_t i = 0; i < set.size() && i < others.size(); ++i) set[i] = set[i] && !others[i];
  return set;
}

inline bool meet(const RootSet& a, const RootSet& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] && b[i]) return true;
  }
  return false;
}

/// The tangents of the roots in the set.
inline ir::Operand::Values chosen(std::span<const ir::ValueId> tangents, const RootSet& set) {
  ir::Operand::Values values;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i]) values.push_back(tangents[i]);
  }
  return values;
}

}  // namespace tandem::joint
