#pragma once

#include "tandem/decomposition.h"

#include <span>
#include <string_view>

namespace tandem::ops {

/// One op in terms of others, as the table has it.
struct DecompositionRow {
  std::string_view op;  // `sum.dim_IntList`: without namespace
  std::vector<Expr> (*body)(const OpCall&);
  bool exact;  // within the bounds that docs/reference/differences.md promises
  std::string_view formula;
};

/// The whole table; ops of libtorch only.
std::span<const DecompositionRow> decomposition_rows();

}  // namespace tandem::ops
