#pragma once

#include "loops/rules/rule.h"

#include <vector>

namespace tandem::loops {

/// A tensor that a node reads, and whether only memory will do.
struct Reading {
  ir::ValueId value;
  bool memory;
};

/// All that a node reads, if this rule computes it.
std::vector<Reading> readings(const ir::Node& node, const Rule& rule);

}  // namespace tandem::loops
