#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace tandem::fuzz {

/// Things that only some programs do. Each has found errors that no other program shows.
enum class ProgramPattern {
  LeafViews,
  EntryReuse,
  MixedBackward,
  UndefinedTangents,
  LazyViews,
  WrappedNumbers,
  ShortScalars,
  SpecialValues,
  LargeMean,
  UnfitNumbers,
  Empties,
  HostState,
  SetData,
  ChangingSizes,
  NewHistories,
  RefusedData,
  InferenceTensors,
  BackwardWrites,
  SpreadNumbers
};

using PatternSet = std::set<ProgramPattern>;

/// A switch of the generator.
struct PatternRow {
  ProgramPattern pattern;
  std::string_view name;
  bool on;  // unless --patterns says otherwise
  std::string_view summary;
};

/// The one table of them.
std::span<const PatternRow> program_patterns();
std::string_view name_of(ProgramPattern pattern);

/// Those that are on in the table, with changes such as "+leaf_views,-set_data" or "-all". A name
/// that is not in the table is an error.
PatternSet switched_on(const std::string& changes);

/// Those of the program of this seed. Whether it has one depends on no other; without any it is the
/// same program as ever.
PatternSet patterns_of(uint64_t seed, const PatternSet& on);

}  // namespace tandem::fuzz
