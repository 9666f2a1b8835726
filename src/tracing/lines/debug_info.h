#pragma once

#include "tandem/ir/location.h"
#include "tracing/lines/loaded_objects.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::tracing {

/// What an object's file knows about one address of code.
struct CodeLines {
  /// Innermost first: a function that was inlined there, the one that it was inlined into, ...
  /// Empty without debug information.
  std::vector<ir::SourceLine> lines;
  std::string symbol;    // demangled, nearest at or below the address; empty: none
  uintptr_t offset = 0;  // of the address from the symbol
};

/// Reads debug information with libdw, which is loaded at the first question; where it is missing
/// only exported symbols are known. Every address is looked up once per process.
const CodeLines& code_lines(const LoadedObject& object, uintptr_t address);

/// How many addresses have been looked up in this process.
int64_t code_line_lookups();

}  // namespace tandem::tracing
