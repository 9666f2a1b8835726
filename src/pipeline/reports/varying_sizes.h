#pragma once

#include "runtime/entry_state.h"
#include "runtime/guards/guards.h"
#include "tandem/ir/signature.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tandem::pipeline {

/// The variants of an entry as one text: symbols where they differ.
struct VaryingSizes {
  /// Sizes, or integers among the arguments, that are equal in each variant share one.
  struct Symbol {
    std::string name;             // `s0`
    std::vector<int64_t> values;  // by variant
  };
  std::vector<Symbol> symbols{};
  ir::Signature signature{};      // with them
  runtime::VaryingWords words{};  // for the guards

  /// `s0: 7 to 32`, one for each symbol.
  std::vector<std::string> legend() const;
};

/// Of variants of one entry; where they do not differ the texts are those of `shown`, one of them.
VaryingSizes varying_sizes(std::span<const runtime::EntryState* const> variants,
                           const runtime::EntryState& shown);

}  // namespace tandem::pipeline
