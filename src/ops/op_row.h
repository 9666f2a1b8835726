#pragma once

#include "ops/op_table.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace tandem::ops {

/// What schema and tags do not say, or say wrongly, about one overload. A set of bits.
enum class Fact : uint32_t {
  None = 0,
  HiddenWrite = 1 << 0,    // writes an argument that the schema calls read-only
  HiddenAlias = 1 << 1,    // results share memory with argument 0 though the schema denies it
  Effect = 1 << 2,         // does something besides returning results
  ReadsData = 1 << 3,      // returns a C++ value that only the data can tell
  StaticSize = 1 << 4,     // tagged as dynamic, but the arguments tell; the rule refuses the rest
  NotPointwise = 1 << 5,   // tagged pointwise, and is not
  NeverOnZeros = 1 << 6,   // on zeros it throws, or answers something else than on data
  CastsInside = 1 << 7,    // its kernel calls ops that autocast casts
  RegisterMeta = 1 << 8,   // libtorch's functionalization or composites need a Meta kernel: ours
  InPlaceRounds = 1 << 9,  // in place, on 16-bit floats, it rounds the number before it computes
  Raises = 1 << 10,        // its kernel looks at data and refuses some of it
  RaisesOnIntegers = 1 << 11,  // it divides, and of integers its kernel refuses a divisor of zero
};
constexpr Fact operator|(Fact a, Fact b) {
  return static_cast<Fact>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool operator&(Fact a, Fact b) {
  return (static_cast<uint32_t>(a) & static_cast<uint32_t>(b)) != 0;
}

/// One row of the table. Fields that are left out follow from schema and tags.
struct OpRow {
  std::string_view op;  // `max.dim`: without namespace
  MetadataRule rule = nullptr;
  Work work = Work::Other;
  Fact facts = Fact::None;
  std::string_view
      draw_switch{};  // the argument that, zero or false, makes a random op draw nothing
};

/// The whole table; ops of libtorch only.
std::span<const OpRow> op_rows();
/// The row of an overload, or null.
const OpRow* find_row(const c10::OperatorHandle& op);

/// One of Tandem's own ops that keep their place among draws and effects, though they return
/// something, or say what they write.
bool keeps_its_place(const c10::OperatorHandle& op);

}  // namespace tandem::ops
